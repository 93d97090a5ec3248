"""What the bits of a run depend on besides its configuration: `comper resume` keeps its promise where these are the same."""

from __future__ import annotations

from typing import Any

import torch

from comper.environments.games import rom_checksum
from comper.errors import UsageError
from comper.runs.manifest import Manifest
from comper.runs.provenance import versions

DECISIVE_PACKAGES = ("numpy", "torch", "ale_py", "opencv_python_headless")
"""Packages whose arithmetic, or saved state, a run rests on."""


def conditions(game: str, device: torch.device) -> dict[str, Any]:
    """Device, threads, processor's instruction set and ROM, as a run's manifest keeps them."""
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "identity": {"rom_md5": rom_checksum(game)},
    }


def device_name(device: torch.device) -> str:
    """The device as a person knows it."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"


def check_conditions(manifest: Manifest, device: torch.device) -> None:
    """Refuse to continue a run where its bits would be others, and say how to get the same conditions."""
    here = conditions(manifest.game, device)
    now = versions()
    for package in DECISIVE_PACKAGES:
        before = manifest.versions.get(package)
        if before != now.get(package):
            _refuse(f"was made with {package} {before}, and here is {now.get(package)}", f"Install {package} {before}")
    if manifest.device != here["device"]:
        _refuse(f"ran on {manifest.device}, and this is {here['device']}", "Choose that --device")
    if manifest.threads != here["threads"]:
        what = f"ran with {manifest.threads} threads, and here are {here['threads']}"
        _refuse(what, f"Set OMP_NUM_THREADS={manifest.threads}")
    if manifest.cpu_capability != here["cpu_capability"]:
        what = f"ran on a processor with {manifest.cpu_capability}, and this one has {here['cpu_capability']}"
        _refuse(what, f"Set ATEN_CPU_CAPABILITY={str(manifest.cpu_capability).lower()} where the processor can do both")
    before, after = manifest.identity.get("rom_md5"), here["identity"]["rom_md5"]
    if before != after:
        _refuse(f"played a ROM with MD5 {before}, and here is {after}", "Use that ROM")


def _refuse(what: str, remedy: str) -> None:
    raise UsageError(
        f"The run {what}: it would not continue to the same bits. {remedy}, or begin a new run from its weights with"
        " --weights-only --out DIR."
    )
