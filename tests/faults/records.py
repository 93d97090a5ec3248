"""What the torture has tried, a file for each row: sittings with the same code add up, others are kept apart."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXTREMES = ("slowest", "peak")
"""Notes that begin so are not summed."""


def code_digest(root: Path = ROOT) -> str:
    """The code under test and the faults it is put to: what is tried with other code does not count for this one."""
    found = [*(root / "src" / "comper").rglob("*"), *(root / "tests" / "faults").glob("*.py")]
    files = sorted(
        path for path in found if path.suffix in (".py", ".c", ".json", ".toml") and "__pycache__" not in path.parts
    )
    sha256 = hashlib.sha256()
    for path in files:
        sha256.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return sha256.hexdigest()[:16]


def commit(root: Path = ROOT) -> str:
    """The commit of a sitting, with a + where files were changed since; empty without git."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def read(path: Path) -> dict[str, Any]:
    """The record of a row, or an empty one."""
    return json.loads(path.read_text()) if path.exists() else {}


def tried(record: Mapping[str, Any], code: str) -> int:
    """How many attempts count for this code."""
    return int(record["tried"]) if record.get("code") == code else 0


def added(record: Mapping[str, Any], sitting: Mapping[str, Any], *, code: str) -> dict[str, Any]:
    """The record with one sitting more: summed where the code is the same, else the old one becomes `earlier`."""
    about = {key: sitting[key] for key in ("commit", "seed", "jobs", "tried", "losses", "seconds")}
    new = {**{key: value for key, value in sitting.items() if key not in ("commit", "seed", "jobs")}, "code": code}
    if record.get("code") != code:
        before = dict(record.get("earlier", {"tried": 0, "losses": 0, "commits": []}))
        if record:
            before["tried"] += record["tried"]
            before["losses"] += record["losses"]
            before["commits"] += [part["commit"] for part in record.get("sittings", [])]
        return new | {"sittings": [about]} | ({"earlier": before} if before["tried"] else {})
    for key in ("tried", "losses", "seconds"):
        new[key] = round(record[key] + sitting[key], 1)
    new["problems"] = [*record["problems"], *sitting["problems"]]
    new["notes"] = summed(record["notes"], sitting["notes"])
    kept = {"earlier": record["earlier"]} if "earlier" in record else {}
    return new | {"sittings": [*record["sittings"], about]} | kept


def summed(notes: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers added up, but of the extremes the larger; of all else the newer."""
    result = dict(notes)
    for key, value in others.items():
        is_number = isinstance(value, int | float)
        before = result.get(key, 0 if is_number else value)
        result[key] = value if not is_number else max(before, value) if key.startswith(EXTREMES) else before + value
    return result
