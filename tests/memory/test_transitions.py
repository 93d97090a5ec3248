"""Rows of transitions, the replay memory of DQN, and its returns over several steps."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.transitions import Batch, ReplayMemories, ReplayMemory, Transition, TransitionTable

GAMMA = 0.99


def filled(capacity: int, count: int) -> ReplayMemory:
    frames = FrameStore((3,))
    replay = ReplayMemory(frames, capacity=capacity, history_length=2)
    for i in range(count):
        ids = [frames.intern(np.full(3, value, np.uint8)) for value in (i, i + 1, i + 2)]
        replay.add(Transition((ids[0], ids[1]), i, float(i), (ids[1], ids[2]), i % 4 == 3), is_last=i % 4 == 3)
        frames.release(ids)
        is_valid, message = replay.check_valid()
        assert is_valid, message
    return replay


def test_the_oldest_transition_goes_first() -> None:
    replay = filled(capacity=5, count=12)
    assert len(replay) == 5
    drawn = replay.sample(500, np.random.default_rng(0))
    assert set(drawn.a.tolist()) == {7, 8, 9, 10, 11}
    assert len(replay.frames) == 7  # frames 7 to 13: those of forgotten transitions are gone


def test_a_batch_holds_the_frames_that_were_seen() -> None:
    replay = filled(capacity=50, count=20)
    batch = replay.sample(100, np.random.default_rng(0))
    s, s_next = (replay.frames.gather(ids)[..., 0] for ids in (batch.s, batch.s_next))
    assert (s == np.stack([batch.a, batch.a + 1], -1)).all()
    assert (s_next == np.stack([batch.a + 1, batch.a + 2], -1)).all()
    assert (batch.continues == (batch.a % 4 != 3)).all()


def test_empty_replay_refuses_to_sample() -> None:
    with pytest.raises(ValueError, match="empty"):
        filled(capacity=5, count=0).sample(1, np.random.default_rng(0))


def test_sampling_is_uniform() -> None:
    replay = filled(capacity=10, count=23)
    counts = np.bincount(replay.sample(100_000, np.random.default_rng(0)).a)[13:]
    # 10,000 expected of each, standard deviation 95: five of them are 475.
    assert np.abs(counts - 10_000).max() < 475


def test_a_replay_memory_read_back_samples_the_same() -> None:
    original, copy = filled(capacity=8, count=21), filled(capacity=8, count=3)
    copy.frames.load_state_dict(original.frames.state_dict())
    copy.load_state_dict(original.state_dict())
    drawn = [replay.sample(64, np.random.default_rng(3)) for replay in (original, copy)]
    for column in ("s", "a", "r", "s_next", "continues"):
        assert (getattr(drawn[0], column) == getattr(drawn[1], column)).all()
    rows = np.arange(8)
    returns = [replay.gather_returns(rows, discount=GAMMA, num_steps=3) for replay in (original, copy)]
    for ours, theirs in zip(*returns, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_state_of_another_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match=r"s: saved with shape \(8, 2\), expected \(9, 2\)"):
        filled(capacity=9, count=3).load_state_dict(filled(capacity=8, count=3).state_dict())


def test_a_row_written_again_holds_the_new_frames_only() -> None:
    frames = FrameStore((1,))
    table = TransitionTable(frames, capacity=1, history_length=1)
    for value in range(4):
        ids = [frames.intern(np.full(1, v, np.uint8)) for v in (value, value + 1)]
        table.write(0, Transition((ids[0],), value, 0.0, (ids[1],), value == 3))
        frames.release(ids)
        assert len(frames) == 2
    row = table.gather(np.array([0]))
    assert (row.a.tolist(), row.continues.tolist()) == ([3], [0.0])
    table.erase(0)
    table.erase(0)  # an empty row stays empty
    assert len(frames) == 0


# Returns over several steps.


class Played:
    """One trial's replay memory beside a plain list of everything that was added."""

    def __init__(self, rng: np.random.Generator, *, capacity: int, count: int, num_steps: int = 1):
        self.frames = FrameStore((1,), np.int64)
        self.memories = ReplayMemories(
            [self.frames], [rng], capacity=capacity, history_length=1, discount=GAMMA, num_steps=num_steps
        )
        self.tape: list[tuple[float, bool, bool]] = []
        for t in range(count):
            ending = rng.choice(["goes on", "terminated", "truncated"], p=[0.7, 0.15, 0.15])
            self.add(float(rng.normal()), is_terminal=ending == "terminated", is_last=ending != "goes on")
            assert self.memories[0].check_valid()[0], t

    def add(self, reward: float, *, is_terminal: bool, is_last: bool) -> None:
        """Transition t leads from frame t to frame t + 1 (to frame -t - 1 at the end of an episode)."""
        t = len(self.tape)
        ids = [self.frames.intern(np.full(1, v, np.int64)) for v in (t, -t - 1 if is_last else t + 1)]
        self.memories.add(0, Transition((ids[0],), t, reward, (ids[1],), is_terminal), is_last=is_last)
        self.frames.release(ids)
        self.tape.append((reward, is_terminal, is_last))

    def expected(self, t: int, num_steps: int) -> tuple[float, int, float]:
        """(return, frame after it, discount) of the window from transition t, straight from the tape."""
        total = 0.0
        for k in range(num_steps):
            reward, is_terminal, is_last = self.tape[t + k]
            total += GAMMA**k * float(np.float32(reward))
            if is_last or t + k == len(self.tape) - 1 or k == num_steps - 1:
                break
        after = -(t + k) - 1 if is_last else t + k + 1
        return total, after, 0.0 if is_terminal else GAMMA ** (k + 1)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 5, 12])
@pytest.mark.parametrize(("capacity", "count"), [(40, 25), (40, 40), (17, 60), (1, 9), (3, 3)])
def test_returns_are_those_of_a_slow_reading_of_the_tape(num_steps: int, capacity: int, count: int) -> None:
    played = Played(np.random.default_rng(num_steps), capacity=capacity, count=count, num_steps=num_steps)
    batch = played.memories.sample(300, [0])
    assert set(batch.a[0].tolist()) == set(range(max(0, count - capacity), count))
    after = played.frames.gather(batch.s_next[0])[:, 0, 0]
    for row, t in enumerate(batch.a[0].tolist()):
        total, frame, discount = played.expected(t, num_steps)
        assert batch.r[0, row] == np.float32(total)
        assert after[row] == frame
        assert batch.discount[0, row] == np.float32(discount)
        assert batch.set_ids[0, row] == t % capacity


def test_three_steps_by_hand() -> None:
    played = Played(np.random.default_rng(0), capacity=10, count=0, num_steps=3)
    for reward, is_terminal, is_last in [
        (1.0, False, False),  # 0: 1 + γ 2 + γ² 4, then γ³
        (2.0, False, False),  # 1: 2 + γ 4, cut by the truncation, then γ²
        (4.0, False, True),  # 2: 4, then γ: after a truncation the value still follows
        (8.0, False, False),  # 3: 8 + γ 16, and nothing follows a game over
        (16.0, True, True),  # 4: 16
        (32.0, False, False),  # 5: 32 + γ 64: the newest row ends the window, then γ²
        (64.0, False, False),  # 6: 64, then γ
    ]:
        played.add(reward, is_terminal=is_terminal, is_last=is_last)
    got = played.memories[0].gather_returns(np.arange(7), discount=0.5, num_steps=3)
    assert got.r.tolist() == [3.0, 4.0, 4.0, 16.0, 16.0, 64.0, 64.0]
    assert got.discount.tolist() == [0.125, 0.25, 0.5, 0.0, 0.0, 0.25, 0.5]


def test_one_step_is_bit_identical_to_reward_and_discount() -> None:
    played = Played(np.random.default_rng(1), capacity=50, count=80)
    rows = np.random.default_rng(5).integers(50, size=400)
    played.memories._rngs = [np.random.default_rng(5)]
    batch, table = played.memories.sample(400, [0]), played.memories[0]._table.gather(rows)
    assert (batch.set_ids[0] == rows).all()  # the same draws
    for name in ("s", "a", "r", "s_next"):
        ours, expected = getattr(batch, name), getattr(table, name)
        assert (ours.dtype, ours[0].tobytes()) == (expected.dtype, expected.tobytes())
    assert batch.discount[0].tobytes() == (np.float32(GAMMA) * table.continues).tobytes()
    assert batch.q_history.shape == (1, 400, 0)


def test_a_terminal_transition_is_the_last_of_its_episode_in_any_case() -> None:
    played = Played(np.random.default_rng(0), capacity=5, count=0)
    played.add(1.0, is_terminal=True, is_last=False)
    played.add(1.0, is_terminal=False, is_last=False)
    got = played.memories[0].gather_returns(np.array([0]), discount=0.5, num_steps=2)
    assert (got.r.tolist(), got.discount.tolist()) == ([1.0], [0.0])


def test_windows_of_no_step_are_refused() -> None:
    with pytest.raises(ValueError, match="num_steps = 0"):
        Played(np.random.default_rng(0), capacity=5, count=0, num_steps=0)


# Several trials.


def several(seeds: list[int], count: int = 30) -> tuple[ReplayMemories, list[FrameStore]]:
    stores = [FrameStore((1,)) for _ in seeds]
    rngs = [np.random.default_rng(seed) for seed in seeds]
    memories = ReplayMemories(stores, rngs, capacity=20, history_length=1, discount=GAMMA, num_steps=2)
    for trial, store in enumerate(stores):
        for t in range(count + trial):
            i = store.intern(np.full(1, t, np.uint8))
            memories.add(trial, Transition((i,), t, float(seeds[trial]), (i,), False), is_last=t % 7 == 6)
            store.release([i])
    return memories, stores


def columns(batch: Batch) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return [batch.set_ids, batch.s, batch.a, batch.r, batch.s_next, batch.discount, batch.q_history]


def test_a_trial_draws_the_same_whoever_is_beside_it() -> None:
    together, alone = several([3, 4, 5])[0], several([5])[0]
    alone.add(0, Transition((0,), 30, 5.0, (0,), False), is_last=False)
    alone.add(0, Transition((0,), 31, 5.0, (0,), False), is_last=False)
    many, one = together.sample(16, [2, 0]), alone.sample(16, [0])
    assert many.trials == (2, 0)
    assert many.s.shape == (2, 16, 1)
    assert (many.set_ids[0] == one.set_ids[0]).all()
    assert (many.a[0] == one.a[0]).all()


def test_the_memories_of_one_trial_are_saved_and_read_back_alone() -> None:
    memories, stores = several([3, 4])
    copy, copied_stores = several([9, 4], count=2)
    copied_stores[0].load_state_dict(stores[0].state_dict())
    copy.load_state_dict(0, memories.state_dict(0))
    copy._rngs[0].bit_generator.state = memories._rngs[0].bit_generator.state
    assert (copy.size(0), copy.nbytes(0)) == (memories.size(0), memories.nbytes(0))
    assert copy.size(1) == 3
    for ours, theirs in zip(columns(memories.sample(32, [0])), columns(copy.sample(32, [0])), strict=True):
        np.testing.assert_array_equal(ours, theirs)
