"""Several processes on one GPU at the same time: NVIDIA's Multi-Process Service (MPS), where the machine has it.

Without it a GPU gives each process a slice of time in turn, and sixteen processes are slower than one (docs/performance.md).
The service is ours alone: it listens in a private folder, and it ends with this process, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache

from comper.processes import usable_cores

CONTROL = "nvidia-cuda-mps-control"
"""The program that starts the service and talks to it."""
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
"""Variables that say where the service is. Who sets them has a service of their own, as on some clusters."""
START_SECONDS = 30.0
PROCESS_BYTES = 2 * 2**30
"""Of a GPU's memory, for one process: CUDA's own half a gigabyte, networks and frames."""
UNSHARED_PROCESSES = 4
"""Processes that still help where the GPU gives them time in turn."""

# The shell lives as long as this process: then its input ends, and it ends the service.
_GUARD = f'{CONTROL} -f >/dev/null 2>&1 & read -r line; echo quit | {CONTROL} >/dev/null 2>&1; wait; rm -rf "$1"'

# The smallest program that has a context on the GPU: it fails where CUDA does.
_TRIAL = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
sys.exit(bool(cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
              or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)))
"""


def num_gpu_processes(num_trials: int, *, wanted: int | None = None) -> int:
    """How many processes should share the GPU, or the wanted number; where it is more than one, they can share it from now on.

    Emulation takes most of the time (docs/performance.md), so there is a quarter more processes than cores.
    """
    if num_trials == 1 or wanted == 1:
        return 1
    cores, is_shared = usable_cores(), share_gpu()
    best = min(cores * 5 // 4, _gpu_bytes() // PROCESS_BYTES) if is_shared else min(UNSHARED_PROCESSES, cores // 2)
    return max(1, min(num_trials, wanted or best))


@cache
def share_gpu() -> bool:
    """Start the service, once, for every process that is started from now on; return whether there is one."""
    if any(name in os.environ for name in FOLDERS):
        return True
    if shutil.which(CONTROL) is None:
        return False
    try:
        variables, guard = _start()
    except OSError:  # no room for a folder, or no shell: it takes longer, and goes without
        return False
    if not _serves(variables):
        _end(guard)
        return False
    os.environ.update(variables)
    atexit.register(_end, guard)
    return True


def sharing_variables() -> dict[str, str]:
    """The environment variables with which a process uses the service."""
    return {name: os.environ[name] for name in FOLDERS if name in os.environ}


def _start() -> tuple[dict[str, str], subprocess.Popen[bytes]]:
    folder = tempfile.mkdtemp(prefix="comper-mps-")
    variables = dict.fromkeys(FOLDERS, folder)
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | variables,
        start_new_session=True,  # Ctrl-C is for the trials: they save what they have before the service ends
    )
    return variables, guard


def _end(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guard.wait(START_SECONDS)


def _serves(variables: Mapping[str, str]) -> bool:
    """Whether processes really compute through the service: it listens, and a trial succeeds that it has served."""
    end = time.monotonic() + START_SECONDS
    try:
        while _servers(variables) is None:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        command = [sys.executable, "-I", "-c", _TRIAL]
        subprocess.run(command, env=os.environ | variables, timeout=START_SECONDS, capture_output=True, check=True)
        return bool(_servers(variables))
    except (OSError, subprocess.SubprocessError):
        return False


def _servers(variables: Mapping[str, str]) -> str | None:
    """What the service says of its servers; None while it does not listen."""
    result = subprocess.run(
        [CONTROL],
        input="get_server_list\n",
        text=True,
        env=os.environ | variables,
        capture_output=True,
        timeout=START_SECONDS,
    )
    return result.stdout.strip() if result.returncode == 0 else None


def _gpu_bytes() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)
