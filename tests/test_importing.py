"""Code from outside by name: what is a name, what may be imported, and what is said when it cannot be."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from comper.errors import EXTRAS, OutsideCodeError, UsageError
from comper.importing import import_module_named, is_outside_name, load_object, require_extras, require_trust

FILES = {
    "users_module.py": "thing = 7\n_hidden = 8\n",
    "needy.py": "import no_such_library\n",
    "failing.py": "x = 1\ny = x / 0\n",
    "broken.py": "x = 1\ndef (\n",
    "colorsys.py": "is_the_users = True\n",  # as a module of the standard library
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with modules of a user; what was imported from it is forgotten afterwards."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.parametrize("name", ["my_module:my_agent", "a.b.c:thing", "x:_y"])
def test_a_name_from_outside_is_a_module_and_an_attribute(name: str) -> None:
    assert is_outside_name(name)


@pytest.mark.parametrize("name", ["dqn", "comper-single", "gym:CartPole-v1", ":x", "x:", "a..b:c", "a:b:c", "a/b:c", "a:b.c"])
def test_other_words_are_no_names_from_outside(name: str) -> None:
    assert not is_outside_name(name)


def test_a_module_in_the_working_folder_is_found() -> None:
    assert load_object("users_module:thing", what="the agent") == 7


def test_a_file_in_the_working_folder_never_replaces_a_module_of_the_standard_library(folder: Path) -> None:
    sys.modules.pop("colorsys", None)
    for _ in range(2):
        assert not hasattr(import_module_named("colorsys"), "is_the_users")
    assert (sys.path[-1], sys.path.count(str(folder))) == (str(folder), 1)


def test_only_trusted_modules_are_imported() -> None:
    with pytest.raises(
        OutsideCodeError, match=r"needs the agent users_module:thing, which is code from outside.* add --trust users_module\."
    ):
        load_object("users_module:thing", what="the agent", trusted=("users", "users_module.sub"))
    assert "users_module" not in sys.modules
    assert load_object("users_module:thing", what="the agent", trusted=("other", "users_module")) == 7
    require_trust("anything", None, what="what the user has typed")


def test_a_misspelt_attribute_gets_a_suggestion_and_never_a_private_one() -> None:
    with pytest.raises(OutsideCodeError, match=r"has no 'thign'\. Did you mean users_module:thing\?$"):
        load_object("users_module:thign", what="the agent")
    with pytest.raises(OutsideCodeError, match=r"has no 'hidden'\.$"):
        load_object("users_module:hidden", what="the agent")


def test_a_module_that_is_missing_or_needs_a_missing_one_is_said() -> None:
    with pytest.raises(OutsideCodeError, match=r"There is no module nowhere in this folder.* the folder of nowhere\.py"):
        import_module_named("nowhere")
    with pytest.raises(OutsideCodeError, match=r"There is no module nowhere\.part in this folder"):
        import_module_named("nowhere.part")
    with pytest.raises(OutsideCodeError, match=r"^The module needy needs no_such_library, which is not installed\.$"):
        import_module_named("needy")


def test_a_module_that_fails_is_named_with_the_line() -> None:
    with pytest.raises(OutsideCodeError, match=r"fails when it is imported: ZeroDivisionError: .* \(failing\.py, line 2\)\.$"):
        import_module_named("failing")


def test_the_modules_of_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS) <= set(project["optional-dependencies"])
    require_extras(*EXTRAS)  # all of them are installed where tests run


def test_all_that_is_missing_is_named_with_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "ale_py"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r'^Not installed: torch, ale_py\. pip install "comper\[train,atari\]"$'):
        require_extras("train", "gymnasium", "atari", "atari")


@pytest.mark.parametrize("name", ["", "../up", "a b", "a..b", "1st", "os; x"])
def test_what_is_no_name_of_a_module_is_refused(name: str) -> None:
    with pytest.raises(OutsideCodeError, match="is not the name of a Python module"):
        import_module_named(name)


def test_a_module_that_is_not_python_is_named_with_its_line() -> None:
    with pytest.raises(OutsideCodeError, match=r"^The module broken is not Python: invalid syntax \(broken.py, line 2\)\.$"):
        import_module_named("broken")


def test_the_name_of_a_file_is_answered_with_that_of_its_module() -> None:
    with pytest.raises(OutsideCodeError, match=r"name its module, users_module, without \.py"):
        load_object("users_module.py:thing", what="the agent")
