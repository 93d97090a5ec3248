"""`make dist`: build the release, check it, install it in a clean environment per extra, and use it there.

    python -m tests.release                    # all of EXTRAS; minutes, as torch is installed several times
    python -m tests.release none report        # some of them

Not a part of `make test`, because of that. The wheel and the source archive are left in dist/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST, PLACE = ROOT / "dist", ROOT / "build" / "release"
CLEAN = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
CLEAN["WANDB_MODE"] = "offline"

MEMORY = """
import numpy as np
from comper.memory import CompactMemory
memory = CompactMemory(100, (4, 84, 84), frame_stack=True, compression="zlib")
memory.add(np.zeros((4, 84, 84), np.uint8), 3, 1.0, np.ones((4, 84, 84), np.uint8), terminated=False)
assert memory.sample(2).actions.tolist() == [3, 3]
"""
SB3 = """
from stable_baselines3 import DQN
from comper.integrations.sb3 import CompactReplayBuffer
model = DQN("MlpPolicy", "CartPole-v1", learning_starts=50, buffer_size=500, replay_buffer_class=CompactReplayBuffer)
model.learn(200)
assert model.replay_buffer.size() == 200
"""
TORCHRL = """
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer
from comper.integrations.torchrl import CompactStorage
buffer = TensorDictReplayBuffer(storage=CompactStorage(10), batch_size=4)
frames = torch.zeros(3, 8, 8, dtype=torch.uint8)
buffer.extend(TensorDict({"observation": frames, "next": {"observation": frames + 1}}, batch_size=[3]))
assert buffer.sample()["next", "observation"].unique().tolist() == [1]
"""
PLAN = """
agent = "dqn"
environments = ["gym:CartPole-v1"]
seeds = 2
settings = { frames = 100, replay_start_steps = 20 }
"""
FILES = {"plan.toml": PLAN, "search.toml": PLAN + "[search]\nstep_size = { low = 1e-4, high = 1e-2, log = true }\n"}
"""What the commands read, beside some run folders in logs/."""
PONG = "runs/comper/pong/seed-0"
SHORT = ["--frames", "100", "--episode-cap-frames", "200", "--device", "cpu", "--workers", "0"]

EXTRAS: dict[str, tuple[str, list[list[str]]]] = {
    "none": ("", [["comper", "--version"], ["python", "-c", MEMORY], ["comper", "agents"], ["comper", "completion", "bash"]]),
    "gymnasium": ("train,gymnasium", [["comper", "train", "gym:CartPole-v1", "--agent", "ddqn", *SHORT]]),
    "atari": ("train,atari", [["comper", "games"], ["comper", "train", "pong", *SHORT]]),
    "minatar": ("train,minatar", [["comper", "train", "minatar:breakout", "--agent", "dqn", *SHORT]]),
    "minigrid": ("train,minigrid", [["comper", "train", "minigrid:Empty-5x5-v0", "--agent", "dqn", *SHORT[:2], *SHORT[4:]]]),
    "report": ("report", [["comper", "report", "logs", "--out", "page"], ["comper", "verify", "logs"]]),
    "faiss": ("faiss", [["python", "-c", MEMORY], ["python", "-c", "import faiss"]]),
    "watch": (
        "train,atari,watch",
        [
            ["comper", "train", "pong", "--checkpoint-period-steps", "10", *SHORT],
            ["comper", "watch", PONG, "--out", "film.mp4", "--seconds", "2", "--device", "cpu"],
            ["comper", "watch", PONG, "--out", "film.gif", "--seconds", "2", "--device", "cpu"],
            ["comper", "memory", PONG, "--out", "memory.png", "--device", "cpu"],
        ],
    ),
    "tensorboard": (
        "train,gymnasium,tensorboard",
        [["comper", "train", "gym:CartPole-v1", "--agent", "dqn", "--tensorboard", "curves", *SHORT]],
    ),
    "wandb": (
        "train,gymnasium,wandb",
        [["comper", "train", "gym:CartPole-v1", "--agent", "dqn", "--wandb", "trial", *SHORT]],
    ),
    "sb3": ("sb3", [["python", "-c", SB3]]),
    "torchrl": ("torchrl", [["python", "-c", TORCHRL]]),
    "ray": ("train,gymnasium,report,ray", [["comper", "study", "plan.toml", "--ray", "--device", "cpu"]]),
    "slurm": ("train,gymnasium,report,slurm", [["comper", "study", "plan.toml", "--dry-run", "--device", "cpu"]]),
    "optuna": ("train,gymnasium,optuna", [["comper", "search", "search.toml", "--tries", "2", "--device", "cpu"]]),
}
"""What is tried -> the extras it is installed with, and the commands that must succeed then."""

REFUSED = {
    "none": (["comper", "train", "freeway"], 'pip install "comper[train,atari]"'),
    "gymnasium": (["comper", "train", "freeway"], 'pip install "comper[atari]"'),
    "report": (["comper", "describe", "dqn"], 'pip install "comper[train,atari]"'),
    "atari": (["comper", "study", "paper"], 'pip install "comper[report]"'),
    "slurm": (["comper", "study", "plan.toml", "--slurm"], "there is no `sbatch` on this machine"),
    "optuna": (["comper", "study", "plan.toml"], 'pip install "comper[report]"'),
}
"""What must fail with this advice, because an extra, or Slurm, is missing."""


class ReleaseError(Exception):
    """A command of the release did not do what it must."""


def main() -> int:
    """Build, check, install and try all; 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to try: {', '.join(EXTRAS)}")
    names = parser.parse_args().names or list(EXTRAS)
    if unknown := set(names) - set(EXTRAS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(EXTRAS)}")
    wheel, failed = build(), 0
    for name in names:
        began = time.monotonic()
        try:
            try_extra(name, wheel)
            outcome = "installed and used"
        except ReleaseError as error:
            failed, outcome = 1, f"FAILED\n{error}\n{name}: failed"
        print(f"{name}: {outcome}, {time.monotonic() - began:.0f} s", flush=True)
    return failed


def build() -> Path:
    """Make dist/ and return the wheel in it."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = make_environment("tools")
    run([python, "-m", "pip", "install", "--quiet", "build", "twine"])
    run([python, "-m", "build", "--outdir", str(DIST), str(ROOT)])
    files = sorted(map(str, DIST.iterdir()))
    run([python, "-m", "twine", "check", "--strict", *files])
    print("\n".join(f"{Path(file).relative_to(ROOT)}: {Path(file).stat().st_size / 1e3:,.0f} kB" for file in files))
    [wheel] = DIST.glob("*.whl")
    return wheel


def try_extra(name: str, wheel: Path) -> None:
    """Install the wheel in a clean environment and use it."""
    extras, commands = EXTRAS[name]
    python = make_environment(name)
    run([python, "-m", "pip", "install", "--quiet", f"{wheel}[{extras}]" if extras else str(wheel)])
    place = PLACE / name / "place"
    place.mkdir()
    with tarfile.open(ROOT / "results" / "first-runs" / "cpu-two-cores.tar.gz") as archive:
        archive.extractall(place / "logs", filter="data")
    for file, text in FILES.items():
        (place / file).write_text(text)
    programs = Path(python).parent
    for program, *words in commands:
        run([str(programs / program), *words], place)
    if name in REFUSED:
        (program, *words), says = REFUSED[name]
        result = subprocess.run([programs / program, *words], cwd=place, env=CLEAN, capture_output=True, text=True)
        if result.returncode != 2 or says not in result.stderr:
            raise ReleaseError(f"{' '.join(words)}: code {result.returncode}, not 2 with {says!r}:\n{result.stderr}")
    run([python, "-m", "pip", "check", "--quiet"])


def make_environment(name: str) -> str:
    """A new virtual environment; its Python."""
    venv.create(PLACE / name, with_pip=True, clear=True)
    return str(PLACE / name / ("Scripts" if sys.platform == "win32" else "bin") / "python")


def run(command: list[str], place: Path = ROOT) -> None:
    """Run a command that must succeed; what it prints is shown where it does not."""
    result = subprocess.run(command, cwd=place, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        raise ReleaseError(f"{result.stdout}\n{' '.join(command[:6])}: exit code {result.returncode}")


if __name__ == "__main__":
    sys.exit(main())
