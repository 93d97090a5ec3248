"""Everything in examples/ runs, and an agent from outside has what every agent has: run folder, resume, report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAIN = ["train", "gym:FrozenLake-v1", "--agent", "my_agent:MY_AGENT", "--frames", "3000", "--device", "cpu", "--workers", "0"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own folder, with the example in it."""
    shutil.copy(EXAMPLES / "my_agent.py", tmp_path)
    return tmp_path


def comper(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "comper", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, check=False, env=os.environ | environment
    )


def test_the_example_is_short() -> None:
    assert len((EXAMPLES / "my_agent.py").read_text().splitlines()) < 80


@pytest.mark.slow
def test_an_agent_from_outside_trains_learns_and_is_reported(folder: Path) -> None:
    result = comper(folder, *TRAIN, "--out", "runs", "--frames", "20000", "--exploration", "0.1")
    assert result.returncode == 0, result.stderr
    run = folder / "runs" / "my_agent-MY_AGENT" / "gym-FrozenLake-v1" / "seed-0"
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["agent"], manifest["game"]) == ("my_agent:MY_AGENT", "gym:FrozenLake-v1")
    assert manifest["changed"] == {"frames": [20000, 100000], "exploration": [0.1, 0.2]}
    scores = [json.loads(line)["score"] for line in (run / "episodes.jsonl").read_text().splitlines()]
    half = len(scores) // 2
    assert sum(scores[half:]) > 1.5 * sum(scores[:half])  # a random walk reaches the goal in 1 or 2 episodes of 100
    assert comper(folder, "report", "runs", "--out", "page").returncode == 0
    assert "my_agent:MY_AGENT" in (folder / "page" / "index.html").read_text()
    assert comper(folder, "verify", "runs").returncode == 0


@pytest.mark.slow
def test_an_agent_from_outside_is_resumed_to_the_same_bits_once_it_is_trusted(folder: Path) -> None:
    assert comper(folder, *TRAIN, "--out", "whole").returncode == 0
    script = """
import os, sys
from comper.cli import main
from comper.training.checkpointing import Checkpointer
write = Checkpointer.write
def and_die(self, step):
    write(self, step)
    if step == 1500:
        os._exit(9)
Checkpointer.write = and_die
sys.exit(main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, *TRAIN, "--out", "killed", "--checkpoint-period-steps", "500"]
    assert subprocess.run(command, cwd=folder, capture_output=True, timeout=240, check=False).returncode == 9
    refused = comper(folder, "resume", "killed", "--device", "cpu", "--workers", "0")
    assert refused.returncode == 2
    assert "add --trust my_agent" in refused.stderr
    resumed = comper(folder, "resume", "killed", "--trust", "my_agent", "--device", "cpu", "--workers", "0")
    assert resumed.returncode == 0, resumed.stderr
    run = Path("my_agent-MY_AGENT", "gym-FrozenLake-v1", "seed-0", "episodes.jsonl")
    assert (folder / "killed" / run).read_bytes() == (folder / "whole" / run).read_bytes()


INTEGRATIONS = {
    "sb3_dqn.py": "CompactReplayBuffer(200 of 100000 transitions",
    "torchrl_buffer.py": "CompactStorage(200 of 100000 rows",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGRATIONS)
def test_the_memory_works_in_other_libraries_in_few_lines(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name), "200"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    assert INTEGRATIONS[name] in result.stdout
    assert len((EXAMPLES / name).read_text().splitlines()) < 50


@pytest.mark.slow
def test_hooks_film_and_picture_of_the_example(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "watch_and_hooks.py", tmp_path)
    command = [sys.executable, "-c", "from watch_and_hooks import main; main(frames=240)"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    assert "mean scores of the checkpoints: {80: " in result.stdout
    assert (tmp_path / "breakout.gif").read_bytes().startswith(b"GIF89a")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "curves").rglob("events.*"))


BROKEN = {
    "old_step": ("return super().step(action)[:4]", "step() must return 5 values"),
    "raises": ("raise RuntimeError('boom')", "code from outside comper failed: RuntimeError: boom"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_mistake_in_the_users_environment_gets_a_sentence(kind: str, tmp_path: Path) -> None:
    body, says = BROKEN[kind]
    (tmp_path / "broken.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        f"class Broken(CartPoleEnv):\n    def step(self, action):\n        {body}\n"
    )
    result = comper(tmp_path, "train", "broken:Broken", "--agent", "random", "--frames", "100", "--workers", "0")
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
