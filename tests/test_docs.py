"""The documents say what the code does: every entry cited exists, every name listed imports, every link leads somewhere."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = r"\b[AD]\d+[a-c]?\b"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
MAX_WIDTH = 120


def source_texts() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py"))}


# Deviations


def cited_entries() -> set[str]:
    return {entry for text in source_texts().values() for entry in re.findall(ENTRY, text)}


def deviations() -> str:
    return (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")


def listed_entries() -> list[str]:
    return re.findall(rf"^\| ({ENTRY}) \|", deviations(), flags=re.MULTILINE)


def test_every_cited_deviation_is_listed() -> None:
    assert cited_entries() - set(listed_entries()) == set()


def test_every_listed_deviation_is_cited_in_the_code() -> None:
    assert set(listed_entries()) - cited_entries() == set()


def test_every_listed_deviation_is_explained_once_in_a_section_of_its_own() -> None:
    sections = re.findall(rf"^### ({ENTRY})\. .+\n\n\S", deviations(), flags=re.MULTILINE)
    assert len(sections) == len(set(sections))
    assert sorted(sections) == sorted(listed_entries())


# The paper map


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


def test_the_paper_map_has_every_equation_table_and_algorithm() -> None:
    text = (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8")
    assert all(f"| Equation {number} |" in text for number in range(1, 6))
    assert all(re.search(rf"^\| (\d+, )*{number}(, \d+)* \|", text, flags=re.MULTILINE) for number in range(1, 11))
    assert all(f"## Algorithm {number}" in text for number in range(1, 4))


# The form of the documents


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_lines_are_wrapped_and_table_cells_hold_phrases(path: Path) -> None:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.startswith("|"):
            assert len(line) <= MAX_WIDTH, f"line {number} has {len(line)} characters"
            continue
        for cell in line.strip("|").split(" | "):
            assert len(cell) <= MAX_WIDTH, f"line {number}: a cell is a paragraph"
            assert not re.search(r"[a-z]{4}\. [A-Z]", cell), f"line {number}: a cell holds several sentences"


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_every_link_to_a_file_leads_to_one(path: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


def test_the_index_lists_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "docs").rglob("*.md"):
        assert path.name == "README.md" or f"({path.relative_to(ROOT / 'docs')})" in index


def test_every_make_target_that_a_document_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, flags=re.MULTILINE))
    files = [*DOCUMENTS, ROOT / ".pre-commit-config.yaml", *(ROOT / ".github" / "workflows").glob("*.yml")]
    for path in files:
        named = re.findall(
            r"(?:`|^    |entry: |run: )make ([a-z][\w-]*)", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        assert set(named) <= targets, path.name


def test_words_that_stopped_readers_stay_away() -> None:
    riddles = r"no file minds|bits would be others|in three dresses|\bone an? (?:trial|core|set|agent)\b|told on stderr"
    texts = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS} | source_texts()
    assert {str(path): found for path, text in texts.items() if (found := re.findall(riddles, text))} == {}


def test_the_version_is_the_same_everywhere() -> None:
    import comper

    assert f'version = "{comper.__version__}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\nversion: {comper.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{comper.__version__}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# Promises that documents make about the code


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
    codes = {kind.exit_code for kind in kinds}
    assert codes | {0} == listed
    assert all(f"{code} " in EXIT_CODES for code in listed)
