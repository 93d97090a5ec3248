"""What the bits of a run depend on besides its configuration: `comper resume` keeps its promise where these are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comper.environments.environment import EnvironmentInfo
from comper.errors import UsageError
from comper.runs.manifest import Manifest
from comper.runs.provenance import versions

if TYPE_CHECKING:
    import torch

DECISIVE_PACKAGES = ("numpy", "torch")
"""Packages whose arithmetic a run rests on; those of its environment are part of the environment's identity."""


def conditions(info: EnvironmentInfo, device: torch.device) -> dict[str, Any]:
    """Device, threads, processor's instruction set and the environment's identity, as a run's manifest keeps them."""
    import torch

    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "identity": dict(info.identity),
    }


def device_name(device: torch.device) -> str:
    """The device as a person knows it."""
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"


def check_conditions(manifest: Manifest, info: EnvironmentInfo, device: torch.device) -> None:
    """Refuse to continue a run where it would not get the same bits, and say how to get the same conditions."""
    here, now = conditions(info, device), versions()
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
    for key, value in here["identity"].items():
        if manifest.identity.get(key) != value:
            before = manifest.identity.get(key)
            _refuse(f"was made with {key} {before}, and here is {value}", f"Get {key} {before}")


def _refuse(what: str, remedy: str) -> None:
    raise UsageError(
        f"The run {what}: it would not continue to the same bits. {remedy}, or begin a new run from its weights with"
        " --weights-only --out DIR."
    )
