"""One name per environment: families, spellings, suggestions, trust."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from comper.environments.families import find_environment
from comper.errors import UsageError


def test_importing_the_registry_imports_nothing_heavy() -> None:
    names = ["ale_py", "cv2", "gymnasium", "minatar", "minigrid", "torch", "matplotlib"]
    code = f"import sys, comper.environments.families; print([n for n in {names} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_module_called_python_is_code_from_outside_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python.py").write_text("raise SystemError('it ran')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="add --trust python"):
        find_environment("gym:python:CartPole-v1", trusted=())
