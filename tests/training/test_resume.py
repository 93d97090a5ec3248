"""Resuming, refusing, verifying, stopping: what a user meets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

from comper.agents.random_policy import RandomPolicy
from comper.agents.registry import AGENTS
from comper.cli import main
from comper.environments.families import find_environment
from comper.errors import DivergedError, ResourceError, StoppedError
from comper.protocol import AgentConfig
from comper.runs import checkpoints
from comper.runs.files import sealed
from comper.training import preflight
from comper.training.checkpointing import Checkpointer
from comper.training.options import resolve_settings
from comper.training.resume import resume
from comper.training.train import train
from tests.toys import Corridor, agent_of, loop_of, setups, task_of

SMALL: dict[str, Any] = {
    "screen_size": 36, "frames": 200, "episode_cap_frames": 150, "replay_start_steps": 12, "target_period_steps": 20,
    "memory_sets": 200, "sets_per_training": 30, "log_period_steps": 10, "epsilon_decay_frames": 100,
}  # fmt: skip
RUN = Path("comper-single", "asterix", "seed-0")


def start(out: Path, *, trials: int = 1, period: int | None = 10, **settings: Any) -> Path:
    options: dict[str, Any] = {"trials": trials, "out": out, "workers": 0, "device": "cpu", "show_progress": False}
    train("asterix", checkpoint_period_steps=period, **options, **(SMALL | settings))
    return out / RUN


def outcome(folder: Path) -> tuple[bytes, list[dict[str, Any]], bytes]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["steps_per_second"]
    return (folder / "episodes.jsonl").read_bytes(), lines, (folder / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials that nothing happened to."""
    return start(tmp_path_factory.mktemp("undisturbed"), trials=2, period=0).parent


def interrupted(out: Path, monkeypatch: pytest.MonkeyPatch, *, at: int = 35, trials: int = 1, name: str = "SIGTERM") -> Path:
    """A run that a signal stopped at a step."""
    with monkeypatch.context() as patch:
        after_step = Checkpointer.after_step

        def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
            self._request.name = name if step == at else None
            after_step(self, trials, step)

        patch.setattr(Checkpointer, "after_step", ask_to_stop)
        with pytest.raises(StoppedError, match=rf"stopped by {name}: saved at step {at}; continue with `comper resume ") as e:
            start(out, trials=trials)
    assert e.value.exit_code == 130
    return out / RUN


def go_on(*folders: Path) -> list[Path]:
    return resume(folders, workers=0, device="cpu", show_progress=False)


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    assert go_on(tmp_path) == [folder]
    assert outcome(folder) == outcome(undisturbed / "seed-0")
    assert json.loads((folder / "manifest.json").read_text())["status"] == "finished"


def test_trials_of_a_population_continue_together_or_alone(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch, trials=2)
    seed_0, seed_1 = (tmp_path / RUN.parent / f"seed-{seed}" for seed in (0, 1))
    go_on(seed_1)
    assert not (seed_0 / "weights.safetensors").exists()
    assert go_on(tmp_path) == [seed_0]
    assert [outcome(folder) for folder in (seed_0, seed_1)] == [outcome(undisturbed / f.name) for f in (seed_0, seed_1)]


def test_trials_at_different_steps_each_continue_from_their_own(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch, trials=2)
    seed_0, seed_1 = (tmp_path / RUN.parent / f"seed-{seed}" for seed in (0, 1))
    (checkpoints.paths(seed_1)[0] / "frames.zlib").write_bytes(b"damaged")
    assert go_on(tmp_path) == [seed_0, seed_1]
    assert [outcome(folder) for folder in (seed_0, seed_1)] == [outcome(undisturbed / f.name) for f in (seed_0, seed_1)]


def test_without_any_whole_checkpoint_a_run_starts_again_to_the_same_bits(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    for path in checkpoints.paths(folder):
        (path / "state.json").unlink()
    go_on(folder)
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_damaged_manifest_is_restored_from_the_newest_checkpoint(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    go_on(folder)
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_finished_run_keeps_its_thirds_and_says_there_is_nothing_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = start(tmp_path)
    assert [path.name for path in checkpoints.paths(folder)] == ["step-00000030", "step-00000020"]
    assert main(["resume", str(tmp_path)]) == 0
    assert "every run here is finished" in capsys.readouterr().err
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {"episodes.jsonl", "metrics.jsonl", "weights.safetensors"}
    assert "q_network/Conv1.weight" in safetensors.numpy.load((folder / "weights.safetensors").read_bytes())


def test_train_offers_to_resume_what_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    flags = [word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    assert main(["train", "asterix", "--out", str(tmp_path), *flags]) == 2
    assert f"unfinished run of the same configuration. Continue it with `comper resume {folder}`" in capsys.readouterr().err
    assert main(["train", "asterix", "--out", str(tmp_path)]) == 2
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"versions": {"torch": "1.0", "numpy": np.__version__}}, r"was made with numpy|torch 1\.0"),
        ({"device": "cuda (NVIDIA H200)"}, "ran on cuda"),
        ({"threads": 77}, "OMP_NUM_THREADS=77"),
        ({"cpu_capability": "OTHER"}, "a processor with OTHER"),
        ({"identity": {"rom_md5": "0" * 32}}, "rom_md5 0000"),
        ({"format": 99}, "format is 99"),
    ],
)
def test_other_conditions_are_refused_with_a_sentence(
    change: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    folder = interrupted(tmp_path, monkeypatch)
    for path in checkpoints.paths(folder):
        (path / "state.json").unlink()  # or the manifest would be restored from there
    manifest = json.loads((folder / "manifest.json").read_text())
    if "versions" in change:
        change = {"versions": manifest["versions"] | {"torch": "1.0"}}
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, **change})))
    assert main(["resume", str(folder), "--device", "cpu"]) in (2, 3)
    error = capsys.readouterr().err
    assert re.search(sentence, error)
    assert "Traceback" not in error


def test_a_changed_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("frames = 200", "frames = 900"))
    assert main(["resume", str(folder)]) == 3
    assert "not the configuration the run was started with" in capsys.readouterr().err


def test_weights_only_begins_a_new_run_that_says_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path / "old", monkeypatch)
    assert main(["resume", str(folder), "--weights-only"]) == 2
    assert "give both or neither" in capsys.readouterr().err
    words = ["--weights-only", "--out", str(tmp_path / "new"), "--device", "cpu", "--checkpoint-period-steps", "0"]
    assert main(["resume", str(folder), *words]) == 0
    manifest = json.loads((tmp_path / "new" / RUN / "manifest.json").read_text())
    assert manifest["started_from"]["step"] == 35
    assert manifest["started_from"]["run"] == str(folder)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"


def test_verify_tells_what_is_damaged_and_what_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    assert main(["verify", str(tmp_path)]) == 0
    assert "continues from step 35" in capsys.readouterr().out
    (checkpoints.paths(folder)[0] / "state.json").write_bytes(b"")
    assert main(["verify", str(tmp_path)]) == 3
    printed = capsys.readouterr().out
    assert "1 damaged" in printed
    assert "state.json" in printed
    assert "continues from step 30" in printed
    go_on(folder)
    assert main(["verify", str(tmp_path)]) == 0
    (folder / "weights.safetensors").write_bytes(b"other")
    assert main(["verify", str(folder)]) == 3
    assert "weights.safetensors" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "nowhere")]) == 2


def test_a_torn_last_line_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    with open(folder / "episodes.jsonl", "ab") as log:
        log.write(b'{"episode": 99, "sco')
    assert main(["verify", str(folder)]) == 0


# The watchdog


class Diverging(RandomPolicy):
    """Learns until something in it is no number any more."""

    def __init__(self, made: Any, *, what: str, at: int):
        super().__init__(AgentConfig(), task_of(made), made, device=torch.device("cpu"))
        self.what, self.at, self.calls = what, at, 0

    def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
        self.calls += 1
        actions, q = super().act(states, epsilon, trials)
        return actions, np.where(self.what == "q" and self.calls > self.at, np.nan, q)

    def is_finite(self) -> bool:
        return not (self.what == "loss" and self.calls >= self.at)


@pytest.mark.parametrize("what", ["q", "loss"])
def test_a_value_that_is_no_number_stops_the_run_within_one_step(what: str) -> None:
    made = setups((5,), [0])
    agent = Diverging(made, what=what, at=7)
    loop, _ = loop_of(AgentConfig(frames=100), agent, [Corridor()], made)
    with pytest.raises(DivergedError, match="diverged"):
        loop.run()
    assert loop.t in (6, 7)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_stops_the_run(reward: float) -> None:
    class Generous(Corridor):
        def step(self, action: int) -> Any:
            import dataclasses

            return dataclasses.replace(super().step(action), reward=reward)

    made = setups((5,), [0])
    loop, _ = loop_of(AgentConfig(frames=100), agent_of(RandomPolicy, AgentConfig(), made), [Generous()], made)
    with pytest.raises(DivergedError, match="a reward"):
        loop.run()
    assert loop.t == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_weight_stops_the_run_with_the_good_checkpoints_untouched(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comper.agents.comper import ComperAgent

    learn = ComperAgent.learn

    def break_it(self: ComperAgent, t: int, trials: Sequence[int]) -> None:
        learn(self, t, trials)
        if t == 39:
            weights = self.q_network.weights(0)
            weights["Dense2.bias"][:] = value
            self.q_network.load_weights(0, weights)

    monkeypatch.setattr(ComperAgent, "learn", break_it)
    with pytest.raises(DivergedError) as error:
        start(tmp_path)
    assert error.value.exit_code == 5
    assert [path.name for path in checkpoints.paths(tmp_path / RUN)][:2] == ["step-00000030", "step-00000020"]
    assert main(["verify", str(tmp_path)]) == 0


# Before the run starts


def needs_of(agent: str, *, trials: int, with_checkpoints: bool = True, **changes: Any) -> preflight.Needs:
    spec = find_environment("asterix")
    settings = resolve_settings(agent, [spec], changes, where="test")
    info = spec.info(settings.environment)
    return preflight.needs_of(settings, info, trials=trials, with_checkpoints=with_checkpoints)


def test_the_estimate_covers_what_a_run_really_takes(tmp_path: Path) -> None:
    folder = start(tmp_path)
    size = sum(path.stat().st_size for path in checkpoints.paths(folder)[0].iterdir())
    assert size <= needs_of("comper-single", trials=1, **SMALL).checkpoint <= 3 * size


@pytest.mark.parametrize("agent", AGENTS)
def test_more_trials_need_more_and_no_checkpoints_less(agent: str) -> None:
    one, five = needs_of(agent, trials=1), needs_of(agent, trials=5)
    assert five.disk == 5 * one.disk
    assert one.memory < five.memory
    assert needs_of(agent, trials=1, with_checkpoints=False).disk <= one.disk


def test_too_little_disk_or_memory_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_disk", lambda folder: 60_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of disk, and 10 MB are free") as error:
        start(tmp_path, frames=100_000)
    assert error.value.exit_code == 4
    monkeypatch.undo()
    monkeypatch.setattr(preflight, "available_memory", lambda: 100_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of memory, and 0.1 GB are there"):
        start(tmp_path)
    assert not tmp_path.joinpath(RUN).exists()


# Signals, as a terminal sends them


def test_two_interrupts_leave_at_once_and_damage_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "comper", "train", "asterix", "--out", str(tmp_path), "--device", "cpu"]
    command += [
        word for key, value in (SMALL | {"frames": 100_000}).items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / RUN / "metrics.jsonl").exists() or not (tmp_path / RUN / "metrics.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGSTOP)  # so that both are waiting when it goes on
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert time.monotonic() - began < 5
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert main(["verify", str(tmp_path)]) == 0
