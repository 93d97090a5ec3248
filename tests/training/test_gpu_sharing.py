"""Several processes on one GPU: how many, and a service that ends with the process that started it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comper.training import gpu_sharing
from comper.training.gpu_sharing import CONTROL, FOLDERS, num_gpu_processes, share_gpu, sharing_variables

# Does what the manual says of NVIDIA's program, as far as it is asked here: a service in the foreground, and questions to it.
SERVICE = """#!/bin/sh
folder=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
    echo $$ > "$folder/pid"
    while [ ! -e "$folder/quit" ]; do sleep 0.02; done
    rm -f "$folder/pid"
    exit 0
fi
read -r question
[ -e "$folder/pid" ] || exit 1
case "$question" in
    get_server_list) [ -e "$folder/served" ] && echo 4711 ;;
    quit) touch "$folder/quit" ;;
esac
exit 0
"""
SERVES = 'import os, pathlib; pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "served").touch()'


@pytest.fixture(autouse=True)
def _no_service_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in FOLDERS:
        monkeypatch.setenv(name, "")  # so that it is removed again at the end
        monkeypatch.delenv(name)
    share_gpu.cache_clear()
    yield
    share_gpu.cache_clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / CONTROL
    path.write_text(SERVICE, encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu_sharing, "_TRIAL", SERVES)
    return path


def waits_until(condition: object, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_one_trial_or_one_process_needs_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "share_gpu", lambda: pytest.fail("a service was asked for"))
    assert num_gpu_processes(1) == num_gpu_processes(40, wanted=1) == 1


def test_where_the_gpu_is_shared_processes_are_a_quarter_more_than_cores_as_far_as_its_memory_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_sharing, "share_gpu", lambda: True)
    monkeypatch.setattr(gpu_sharing, "usable_cores", lambda: 16)
    monkeypatch.setattr(gpu_sharing, "_gpu_bytes", lambda: 140 * 2**30)
    assert (num_gpu_processes(40), num_gpu_processes(3), num_gpu_processes(40, wanted=7)) == (20, 3, 7)
    monkeypatch.setattr(gpu_sharing, "_gpu_bytes", lambda: 8 * 2**30)
    assert num_gpu_processes(40) == 4


def test_where_it_is_not_shared_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "share_gpu", lambda: False)
    monkeypatch.setattr(gpu_sharing, "usable_cores", lambda: 16)
    assert num_gpu_processes(40) == 4
    monkeypatch.setattr(gpu_sharing, "usable_cores", lambda: 2)
    assert num_gpu_processes(40) == 1


def test_a_machine_without_the_program_has_no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not share_gpu()
    assert sharing_variables() == {}


def test_a_service_that_runs_already_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FOLDERS[0], str(tmp_path))
    assert share_gpu()
    assert sharing_variables() == {FOLDERS[0]: str(tmp_path)}


@pytest.mark.usefixtures("program")
def test_a_service_that_serves_nobody_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "_TRIAL", "pass")  # a process that got no context from the service
    assert not share_gpu()
    assert sharing_variables() == {}


@pytest.mark.parametrize("ending", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_service_ends_with_its_process_however_that_ends(program: Path, ending: str) -> None:
    script = f"""
from comper.training import gpu_sharing
gpu_sharing._TRIAL = {SERVES!r}
assert gpu_sharing.share_gpu()
print(gpu_sharing.sharing_variables()[{FOLDERS[0]!r}], flush=True)
{ending}
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert result.returncode == (-9 if ending else 0), result.stderr
    folder = Path(result.stdout.strip())
    assert folder.name.startswith("comper-mps-")
    assert waits_until(lambda: not folder.exists())


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs an NVIDIA GPU")
def test_processes_compute_through_the_service() -> None:
    script = """
from comper.training.gpu_sharing import share_gpu
assert share_gpu()
import torch
assert torch.zeros(3, device="cuda").add(1).sum().item() == 3
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_no_room_for_the_services_folder_is_no_reason_to_stop(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("comper.training.gpu_sharing.tempfile.mkdtemp", full)
    assert not share_gpu()
