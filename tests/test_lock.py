"""What is installed is what was locked: every package of the two README commands, by version and digest."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tools.lock import CONSTRAINTS, CPU_LOCK, LOCK, ROOT, WANTED, is_of_version, lock_text, pins, read_lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def wanted() -> list[Requirement]:
    """Everything that `make setup` asks for by name."""
    extras = PROJECT["project"]["optional-dependencies"]
    texts = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *extras["all"], *extras["dev"]]
    found = []
    for requirement in map(Requirement, texts):
        own = requirement.name == PROJECT["project"]["name"]
        found += [Requirement(text) for extra in requirement.extras for text in extras[extra]] if own else [requirement]
    return found


def test_the_lock_and_the_constraints_name_the_same_versions() -> None:
    locked, constrained = pins("\n".join(read_lock(LOCK.read_text()))), pins(CONSTRAINTS.read_text())
    assert {name: version for name, version in locked.items() if constrained.get(name) != version} == {}


def test_the_lock_holds_what_the_project_asks_for() -> None:
    locked = pins("\n".join(read_lock(LOCK.read_text())))
    assert len(wanted()) > 15
    missing = [str(r) for r in wanted() if not r.specifier.contains(locked.get(canonicalize_name(r.name), Version("0")))]
    assert missing == [], "run `make lock`"
    assert {"hatchling", "editables"} <= set(locked)
    assert WANTED[0].endswith("[all,dev]")


def test_the_lock_holds_what_the_locked_packages_ask_for() -> None:
    locked = pins("\n".join(read_lock(LOCK.read_text())))
    missing = []
    for name in set(locked) - {"torch"}:  # one build of which asks for CUDA's libraries
        for requirement in map(Requirement, installed_requirements(name, locked[name])):
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            missing += [f"{name}: {requirement}"] if is_needed and canonicalize_name(requirement.name) not in locked else []
    assert missing == [], "run `make lock`"


def installed_requirements(name: str, version: Version) -> list[str]:
    """What an installed package asks for; nothing where it is not here in that version."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return []
    return (found.requires or []) if Version(found.version).public == version.public else []


def test_every_package_has_digests_and_torch_those_of_several_indexes() -> None:
    hashes = read_lock(LOCK.read_text())
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digests in hashes.values() for digest in digests)
    assert all(hashes.values())
    (torch,) = (pin for pin in hashes if pin.startswith("torch=="))
    assert len(hashes[torch]) > 20, "other platforms"
    (cpu, digests), *others = read_lock(CPU_LOCK.read_text()).items()
    assert (cpu, others) == (f"{torch}+cpu", [])
    assert digests < hashes[torch]


def test_a_lock_is_read_back_as_it_was_written() -> None:
    hashes = {"b==2": {"0" * 64, "1" * 64}, "a==1.0": {"f" * 64}}
    assert read_lock(lock_text(hashes)) == hashes
    assert lock_text(hashes) == lock_text(dict(sorted(hashes.items())))
    assert lock_text(read_lock(LOCK.read_text())) == LOCK.read_text()


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0-cp312-cp312-win_amd64.whl", True),
        ("torch-2.13.0.tar.gz", True),
        ("torch-2.13.0.post1-cp312-cp312-win_amd64.whl", False),
        ("torch-2.13.0.win32-py2.4.exe", False),
        ("torch-2.13.0.tar.gz.asc", False),
    ],
)
def test_files_of_a_version_are_known_by_their_names(file_name: str, expected: bool) -> None:
    assert is_of_version(file_name, Version("2.13.0")) == expected


def make_wheel(folder: Path) -> Path:
    """A wheel of an empty package."""
    path = folder / "nothing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("nothing.py", "")
        wheel.writestr("nothing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nothing\nVersion: 1.0\n")
        wheel.writestr("nothing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("nothing-1.0.dist-info/RECORD", "")
    return path


def test_a_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    wheel, lock = make_wheel(tmp_path), tmp_path / "requirements.lock"
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--no-index", "--find-links", str(tmp_path)]
    command += ["--target", str(tmp_path / "target"), "--require-hashes", "--no-deps", "-r", str(lock)]
    outcomes = []
    for digests in ({"0" * 64}, {"0" * 64, right}):
        lock.write_text(lock_text({"nothing==1.0": digests}))
        outcomes.append(subprocess.run(command, capture_output=True, text=True, check=False))
    assert outcomes[0].returncode != 0
    assert "DO NOT MATCH THE HASHES" in outcomes[0].stderr
    assert outcomes[1].returncode == 0, outcomes[1].stderr
    assert (tmp_path / "target" / "nothing.py").exists()


def test_setup_installs_the_lock_first_and_the_package_without_a_network() -> None:
    recipe = (ROOT / "Makefile").read_text().split("\n$(READY):", 1)[1].split("\n\n", 1)[0]
    installs = [line for line in recipe.splitlines() if "$(PIP) install" in line]
    assert all("--require-hashes --no-deps -r requirements" in line for line in installs[:2])
    assert "requirements-cpu.lock" in installs[0], "first: what is installed already is not looked for again"
    assert "--no-deps --no-build-isolation -e ." in installs[2]
    assert "$(PIP) check" in installs[3], "only where the index's torch asks for more than the lock holds"
    assert "requirements.lock" in recipe.splitlines()[0]
