"""Our kernels are used where they run, and nowhere else; Triton's interpreter says whether they compute what torch does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

from comper.networks import residual
from comper.networks.cnn import ObservationSpec
from comper.networks.gpu_kernels import gpu_kernels
from tests.networks.interpreted_kernels import HAS_TRITON, needs_gpu

ROOT = Path(__file__).parents[2]
NAME = "kernels_of_a_test"
MISSING = [
    "ImportError",
    "ModuleNotFoundError",
    "RuntimeError",
    "OSError",
    "FileNotFoundError",
    "subprocess.CalledProcessError(1, 'cc')",
    "subprocess.TimeoutExpired('cc', 1)",
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A GPU that is just new enough; what is asked of it."""
    questions: list[str] = []

    def capability() -> tuple[int, int]:
        questions.append("capability")
        return 8, 0

    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    gpu_kernels.cache_clear()
    yield questions
    gpu_kernels.cache_clear()
    sys.modules.pop(NAME, None)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[str]) -> Path:
    """Of the module, which is still to be written, on a machine with such a GPU."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / f"{NAME}.py"


WORKING = "tries = []\ndef try_out():\n    tries.append(1)\n"


def test_kernels_that_run_are_had_and_are_tried_out_once(path: Path, asked: list[str]) -> None:
    path.write_text(WORKING)
    module = gpu_kernels(NAME)
    assert module is import_module(NAME)
    assert gpu_kernels(NAME) is module
    assert module.tries == [1]
    assert asked == ["capability"]


@pytest.mark.parametrize("error", MISSING)
@pytest.mark.parametrize("when", ["raise {}", "def try_out():\n    raise {}"], ids=["imported", "tried out"])
def test_without_what_they_need_torch_does_the_work_and_they_are_not_asked_for_again(
    path: Path, asked: list[str], when: str, error: str
) -> None:
    path.write_text("import subprocess\n" + when.format(error))
    assert gpu_kernels(NAME) is None
    path.write_text(WORKING)
    assert gpu_kernels(NAME) is None
    assert asked == ["capability"]


@pytest.mark.usefixtures("asked")
def test_kernels_that_are_not_there_are_not_had() -> None:
    assert gpu_kernels(NAME) is None


@pytest.mark.parametrize("when", ["raise ValueError", "def try_out():\n    raise ValueError"], ids=["imported", "tried out"])
def test_our_own_mistakes_are_not_hidden(path: Path, when: str) -> None:
    path.write_text(when)
    with pytest.raises(ValueError):
        gpu_kernels(NAME)


def test_a_gpu_whose_memory_is_full_lacks_no_kernels(path: Path) -> None:
    path.write_text("import torch\ndef try_out():\n    raise torch.OutOfMemoryError")
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            gpu_kernels(NAME)


@pytest.mark.parametrize(
    ("width", "image_channels", "batch", "is_asked"),
    [
        (1, 4, 32, True), (2, 4, 32, True), (3, 4, 32, False), (4, 4, 32, False), (8, 4, 32, False),
        (1, 21, 32, True), (1, 22, 32, False), (1, 4, 4_755, True), (1, 4, 4_756, False),
    ],
)  # fmt: skip
def test_kernels_are_for_narrow_networks_and_offsets_of_32_bits(
    monkeypatch: pytest.MonkeyPatch, width: int, image_channels: int, batch: int, is_asked: bool
) -> None:
    monkeypatch.setattr(residual, "gpu_kernels", lambda name: import_module("types"))
    with torch.device("meta"):
        made = residual.ResidualCNN(width, ObservationSpec((84, 84), image_channels), 3)
        images = torch.zeros(2, batch, image_channels, 84, 84)
    assert (made._kernels(images) is not None) == is_asked


@pytest.mark.parametrize(("capability", "is_new"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((12, 0), True)])
def test_an_older_gpu_is_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, path: Path, capability: tuple[int, int], is_new: bool
) -> None:
    path.write_text(WORKING)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert (gpu_kernels(NAME) is not None) == is_new
    assert (NAME in sys.modules) == is_new  # an older one does not even import them


def test_a_cpu_never_asks_for_kernels(asked: list[str]) -> None:
    residual.ResidualCNN(1, ObservationSpec((4, 4), 1), 3)(torch.zeros(1, 2, 1, 4, 4))
    assert asked == []


@needs_gpu
@pytest.mark.gpu
def test_our_own_kernels_run_on_this_gpu() -> None:
    import_module(residual.KERNELS).try_out()
    assert gpu_kernels(residual.KERNELS) is import_module(residual.KERNELS)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
@pytest.mark.slow
def test_in_tritons_interpreter_our_kernels_compute_what_torch_does() -> None:
    tests = "tests/networks/test_gpu_convolutions.py"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
