"""The documents say what the code does: every entry cited exists, every name listed imports."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = r"\b[AD]\d+[a-c]?\b"


def source_texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))}


def cited_entries() -> set[str]:
    return {entry for text in source_texts().values() for entry in re.findall(ENTRY, text)}


def listed_entries() -> set[str]:
    text = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    return set(re.findall(rf"^\| ({ENTRY}) \|", text, flags=re.MULTILINE))


def test_every_cited_deviation_is_listed() -> None:
    assert cited_entries() - listed_entries() == set()


def test_every_listed_deviation_is_cited_in_the_code() -> None:
    assert listed_entries() - cited_entries() == set()


def mapped_names() -> list[str]:
    text = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"`(comper\.[\w.]+)`", text)))


@pytest.mark.parametrize("name", mapped_names())
def test_every_name_in_the_paper_map_imports(name: str) -> None:
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            found = getattr(found, part)
        return
    pytest.fail(f"{name} does not exist")


def test_no_module_unpickles_or_loads_with_torch() -> None:
    words = r"import c?pickle|from c?pickle|import (dill|shelve|marshal|joblib)|cloudpickle|torch\.(load|save)\b|np\.load\b"
    forbidden = re.compile(rf"\b({words}|marshal|yaml\.load|allow_pickle=True|eval\(|exec\()")
    found = [str(path) for path, text in source_texts().items() if forbidden.search(text)]
    assert found == []


def test_exit_codes_are_those_of_the_errors() -> None:
    from comper import errors
    from comper.cli import EXIT_CODES

    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ComperError)]
    codes = {kind.exit_code for kind in kinds} - {errors.ComperError.exit_code}
    assert codes | {0} == listed
    assert all(f"{code} " in EXIT_CODES for code in listed)
