"""The one way to start a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from multiprocessing.connection import Connection
from pathlib import Path

from comper.processes import STOP_SIGNALS, can_start_processes, how_it_ended, start_process, usable_cores

ROOT = Path(__file__).parents[1]


def tell(connection: Connection, word: str) -> None:
    """What the child knows of the world."""
    handlers = {name: signal.getsignal(getattr(signal, name)) is signal.SIG_IGN for name in STOP_SIGNALS}
    connection.send((word, os.environ.get("PYTHONSAFEPATH"), handlers, can_start_processes()))


def test_a_child_is_safe_from_the_working_folder_and_leaves_signals_to_its_parent() -> None:
    before = os.environ.get("PYTHONSAFEPATH")
    for may_have_children in (False, True):
        process, connection = start_process(tell, "hello", may_have_children=may_have_children)
        word, safe_path, handlers, can_start = connection.recv()
        process.join()
        assert (word, safe_path, can_start) == ("hello", "1", may_have_children)
        assert all(handlers.values())
    assert os.environ.get("PYTHONSAFEPATH") == before
    assert sys.modules["__main__"].__name__ == "__main__"


def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            from comper import train
            print("begun")
            print(len(train("gym:CartPole-v1", "random", trials=2, frames=20, processes=2, device="cpu", show_progress=False)))
        """)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("begun\n2\n", "")


def test_the_end_of_a_process_is_told_in_words() -> None:
    words = [how_it_ended(code) for code in (-9, 3, None)]
    assert words == ["was killed (SIGKILL)", "ended by itself with exit code 3", "ended by itself with exit code None"]


def test_there_is_a_core_to_use() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
