"""Writes requirements.lock: what `make run` and `make test` install, with the digests of all files of each version.

    make lock        # after a change of pyproject.toml or constraints.txt

Which packages are needed is what pip answers under constraints.txt; the digests are those on the index pages that pip is set
up with, for every platform. Digests that the lock has already are kept for the same version, so that files of several indexes
can stand side by side: run it once with each. A version that says how it was built (torch 2.13.0+cpu) is also pinned in
requirements-cpu.lock, which is tried first: of two files of one version pip prefers that whose digest an index names.
"""

from __future__ import annotations

import functools
import hashlib
import html
import json
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
CPU_LOCK = ROOT / "requirements-cpu.lock"
CONSTRAINTS = ROOT / "constraints.txt"
WANTED = [f"{ROOT}[all,dev]", "hatchling", "editables"]
"""The extras of `make setup`, and what builds the package itself without a network."""

HEADER = """\
# Written by `make lock`; docs/reliability.md says how it is used and what to do when a digest does not fit.
"""
_LINK = re.compile(r'<a\s[^>]*href="([^"#]*)#sha256=([0-9a-f]{64})"', re.IGNORECASE)

Hashes = dict[str, set[str]]
"""Requirement with its version -> SHA-256 of each file."""


def main() -> int:
    """Write the locks."""
    before, built_before = (read_lock(path.read_text()) if path.exists() else {} for path in (LOCK, CPU_LOCK))
    found: Hashes = {}
    built: Hashes = {}
    for name, version, digest in resolved():
        pin, files = f"{name}=={version.public}", dict(digests(name, version))
        built |= {f"{pin}+{version.local}": {digest, *_of(files, version)}} if version.local else {}
        found[pin] = {digest, *before.get(pin, set()), *files.values()}
        print(f"{pin}: {len(found[pin])} files", flush=True)
    # An index without such builds must not lose them.
    built |= {pin: entries | built.get(pin, set()) for pin, entries in built_before.items() if pin.partition("+")[0] in found}
    LOCK.write_text(lock_text(found))
    CPU_LOCK.write_text(lock_text(built))
    return 0


def _of(files: dict[str, str], version: Version) -> set[str]:
    """The digests of the files that were built in one way."""
    return {digest for file_name, digest in files.items() if f"-{version}-" in file_name}


def resolved() -> Iterator[tuple[str, Version, str]]:
    """Name, version and digest of each package that pip would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(report), "--constraint", str(CONSTRAINTS)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *WANTED], check=True)
        for entry in json.loads(report.read_text())["install"]:
            about, archive = entry["metadata"], entry["download_info"].get("archive_info")
            if archive is not None:  # the package itself is a folder
                yield canonicalize_name(about["name"]), Version(about["version"]), archive["hashes"]["sha256"]


def digests(name: str, version: Version) -> Iterator[tuple[str, str]]:
    """Name and digest of all files of a version, on every page and in every folder that pip looks at."""
    for page in index_pages(name):
        for link, digest in _LINK.findall(page):
            file_name = urllib.parse.unquote(html.unescape(link)).rpartition("/")[2]
            if is_of_version(file_name, version):
                yield file_name, digest
    for folder in _options("find-links"):
        for path in Path(folder).glob("*"):
            if is_of_version(path.name, version) and file_package(path.name) == name:
                yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def index_pages(name: str) -> Iterator[str]:
    """What the indexes that pip is set up with say about a package."""
    from pip._internal.models.index import PyPI  # pip's own default

    for index in [*(_options("index-url") or [PyPI.simple_url]), *_options("extra-index-url")]:
        place = f"{index.rstrip('/')}/{name}/" + ("index.html" if index.startswith("file:") else "")
        try:
            with urllib.request.urlopen(place, timeout=60) as answer:
                yield answer.read().decode()
        except urllib.error.URLError:
            continue  # not every index has every package


@functools.cache
def _options(name: str) -> list[str]:
    """The values of one of pip's options, from its files and from the environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    found: dict[str, None] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        if key.rpartition(".")[2] == name:
            found |= dict.fromkeys(" ".join(shlex.split(value)).split())
    return list(found)


def is_of_version(file_name: str, version: Version) -> bool:
    """Whether a file is of a version; parts that only say how it was built (`+cpu`) do not matter."""
    try:
        parsed = parse_wheel_filename(file_name)[1] if file_name.endswith(".whl") else parse_sdist_filename(file_name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return False
    return parsed.public == version.public


def file_package(file_name: str) -> str:
    """The package that a file is of."""
    return parse_wheel_filename(file_name)[0] if file_name.endswith(".whl") else parse_sdist_filename(file_name)[0]


def lock_text(hashes: Hashes) -> str:
    """The lock as it is written."""
    blocks = [
        " \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[pin]))]) for pin in sorted(hashes)
    ]
    return HEADER + "".join(block + "\n" for block in blocks)


def read_lock(text: str) -> Hashes:
    """The pins of a lock, and their digests."""
    blocks = re.sub(r"\\\n", " ", text).splitlines()
    words = [block.split() for block in blocks if block and not block.startswith("#")]
    return {pin: {entry.removeprefix("--hash=sha256:") for entry in entries} for pin, *entries in words}


def pins(text: str) -> dict[str, Version]:
    """Name -> version of a list of pins, such as constraints.txt."""
    found = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in found}


if __name__ == "__main__":
    sys.exit(main())
