"""What each learning agent comes to in some hundred steps of a game, so that a change of results is noticed.

`golden.json` holds, for each agent, what every machine must come to (actions, episodes and counts exactly; losses and changes
of weights within a tolerance), and for each kind of processor and version of torch a digest of every bit. Where a machine's
kind is not listed, the first part is compared alone.

A change that alters results on purpose says so in CHANGELOG.md, with what was measured before and after, and renews the file:

    python tests/agents/test_golden.py --renew

That writes the values and forgets the digests of other kinds; `--add` only adds the digests of this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden.json")
AGENTS = ("comper", "comper-single", "comper-stacked", "dqn", "ddqn")
GAME, SEED = "asterix", 3
CAPABILITIES = ("default", "avx2", "avx512")
"""Kernels that torch can be told to use on an x86 processor that has them."""

# Small, but with everything in it: game overs, the frame cap, random and greedy actions, several trainings of the targets.
SETTINGS: dict[str, Any] = {
    "screen_size": 44, "frames": 1_000, "episode_cap_frames": 840, "replay_start_steps": 40, "target_period_steps": 60,
    "epsilon_decay_frames": 3_000, "batch_size": 16, "log_period_steps": 50,
}  # fmt: skip
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "comper": {"refresh_period_steps": 25, "train_period_steps": 8, "episode_cap_frames": 890},
    "comper-single": {"sets_per_training": 50},
    "comper-stacked": {"sets_per_training": 50, "frames": 5_000, "epsilon_decay_frames": 12_000},
    "dqn": {"episode_cap_frames": 890},
    "ddqn": {"episode_cap_frames": 890},
}

TOLERANCE = 1e-3
"""Of losses, and of changes of weights relative to their size."""


def played(name: str) -> dict[str, Any]:
    """Play with one agent; return what it came to."""
    import torch

    torch.set_num_threads(1)
    from comper.environments.families import find_environment
    from comper.training.options import resolve_settings
    from comper.training.randomness import environment_seed
    from tests.toys import loop_of, setups

    spec = find_environment(GAME)
    settings = resolve_settings(name, [spec], SETTINGS | OWN_SETTINGS.get(name, {}), where="test")
    observations = settings.config.observations_per_step
    environment = spec.factory(settings.environment, seed=environment_seed(SEED), observations_per_step=observations)()
    made = setups(environment.info.observation_shape, [SEED])
    agent = settings.agent.agent(settings.config, settings.task(environment.info), made, device=torch.device("cpu"))
    actions: list[int] = []
    act = agent.act

    def watched(*args: Any) -> Any:
        chosen, q = act(*args)
        actions.extend(chosen.tolist())
        return chosen, q

    vars(agent)["act"] = watched
    start = flat_weights(agent.weights(0))
    loop, (tape,) = loop_of(settings.config, agent, [environment], made)
    loop.run()
    end = flat_weights(agent.weights(0))
    lines = [{key: value for key, value in line.items() if key != "bytes_held"} for line in tape.lines]
    episodes = [vars(episode) for episode in tape.episodes]
    weights = {network: described(w, start[network]) for network, w in end.items()}
    bits = hashlib.sha256(json.dumps([actions, episodes, lines]).encode())
    for network, w in end.items():
        bits.update(network.encode() + w.tobytes())
    return {"actions": actions, "episodes": episodes, "lines": lines, "weights": weights, "digest": bits.hexdigest()}


def flat_weights(weights: dict[str, Any]) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """The weights of each network by parameter: `q_network.Conv1.weight` -> values."""
    tensors = {f"{part}.{name}": w for part, named in weights.items() for name, w in named.items() if hasattr(w, "numpy")}
    return {path: w.numpy().ravel() for path, w in tensors.items()}


def described(w: Any, start: Any) -> dict[str, float]:
    """Length of a parameter at the start, length of its change, and the change seen from a fixed direction of length 1."""
    change = w.astype(np.float64) - start
    direction = np.random.default_rng(0).standard_normal(len(w))
    seen = float(direction @ change / np.linalg.norm(direction))
    return {"start": float(np.linalg.norm(start)), "change": float(np.linalg.norm(change)), "seen": seen}


def kind_of_machine() -> str:
    """What the last bits depend on: the kernels that are chosen for the processor, and the version of torch.

    The processor's name belongs to it: libraries divide products by the sizes of its caches.
    """
    import torch

    name = platform.processor() or platform.machine()
    if (cpu := Path("/proc/cpuinfo")).exists():
        models = [line.split(":", 1)[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
        name = models[0] if models else name
    return f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, {name}"


def in_a_process_of_its_own(name: str, **environment: str) -> dict[str, Any]:
    """`played` with one thread, whatever this process has done before."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    result = subprocess.run(
        [sys.executable, "-m", "tests.agents.test_golden", "--play", name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def differences(found: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """What is not as it was, beyond the rounding that differs between processors."""
    wrong = [f"{name} differ" for name in ("actions", "episodes") if found[name] != golden[name]]
    if len(found["lines"]) != len(golden["lines"]):
        wrong.append(f"{len(found['lines'])} lines of metrics, not {len(golden['lines'])}")
    for ours, theirs in zip(found["lines"], golden["lines"], strict=False):
        wrong += [f"step {ours['steps']}: {key}" for key in ours.keys() | theirs.keys() if not is_close(ours, theirs, key)]
    if found["weights"].keys() != golden["weights"].keys():
        wrong.append("other weights")
    for name in found["weights"].keys() & golden["weights"].keys():
        ours, theirs = found["weights"][name], golden["weights"][name]
        close = ours["start"] == pytest.approx(theirs["start"], rel=1e-5)
        close &= max(abs(ours[key] - theirs[key]) for key in ("change", "seen")) <= TOLERANCE * theirs["change"]
        wrong += [] if close else [f"{name}: {ours}, not {theirs}"]
    return wrong


def is_close(ours: dict[str, Any], theirs: dict[str, Any], key: str) -> bool:
    mine, other = ours.get(key), theirs.get(key)
    if key == "refresh_residual" and mine is not None and other is not None:
        return bool(abs(mine - other) <= TOLERANCE)  # of values about 1
    if key.endswith("_loss") and mine is not None and other is not None:
        return bool(abs(mine - other) <= TOLERANCE * abs(other))
    return bool(mine == other)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_comes_to_what_it_came_to_before(agent: str, golden: dict[str, Any]) -> None:
    pytest.importorskip("ale_py")
    found = in_a_process_of_its_own(agent)
    advice = "results have changed: if that is meant, say so in CHANGELOG.md and renew (see the docstring of this file)"
    assert differences(found, golden["values"][agent]) == [], advice
    expected = golden["digests"].get(found["machine"], {}).get(agent, found["digest"])
    assert found["digest"] == expected, f"the last bits differ; {advice}"


def test_a_change_of_results_is_found_beyond_rounding(golden: dict[str, Any]) -> None:
    original = golden["values"]["comper-single"]
    assert differences(original, original) == []

    def changed(*path: Any, by: float) -> dict[str, Any]:
        copy: dict[str, Any] = json.loads(json.dumps(original))
        *way, last = path
        place: Any = copy
        for step in way:
            place = place[step]
        place[last] *= 1 + by
        return copy

    first_loss = next(i for i, line in enumerate(original["lines"]) if line["cnn_loss"])
    rounded: list[list[Any]] = [["lines", first_loss, "cnn_loss"], ["weights", "q_network.Dense2.weight", "change"]]
    for path in rounded:
        assert differences(changed(*path, by=1e-5), original) == []
        assert len(differences(changed(*path, by=2e-3), original)) == 1
    exact: list[list[Any]] = [["lines", 0, "tm_sets"], ["episodes", 0, "score"], ["actions", 7]]
    for path in exact:
        assert len(differences(changed(*path, by=1.0), original)) == 1


def renew(*, keep_values: bool) -> None:
    """Write golden.json, with the digests of every kind of kernels that this machine has."""
    content: dict[str, Any] = {"values": {}, "digests": {}}
    if keep_values:
        content = json.loads(GOLDEN.read_text(encoding="utf-8"))
    kinds = CAPABILITIES if platform.machine() in ("x86_64", "AMD64") else ("",)
    for name in AGENTS:
        found = in_a_process_of_its_own(name)
        values = {key: value for key, value in found.items() if key not in ("digest", "machine")}
        content["values"].setdefault(name, values)
        for kind in kinds:
            found = in_a_process_of_its_own(name, **({"ATEN_CPU_CAPABILITY": kind} if kind else {}))
            for wrong in differences(found, content["values"][name]):
                print(f"{name}, {found['machine']}: {wrong}")
            content["digests"].setdefault(found["machine"], {})[name] = found["digest"]
    text = json.dumps(content, indent=1)
    innermost = r"[\[{][^\[\]{}]*[\]}]"  # on one line each
    GOLDEN.write_text(re.sub(innermost, lambda found: " ".join(found[0].split()), text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--renew", action="store_true", help="write the values and this machine's digests")
    action.add_argument("--add", action="store_true", help="keep the values, add this machine's digests")
    action.add_argument("--play", choices=AGENTS, help="print what an agent comes to, as JSON")
    given = parser.parse_args()
    if given.play:
        print(json.dumps({**played(given.play), "machine": kind_of_machine()}))
    else:
        renew(keep_values=given.add)
