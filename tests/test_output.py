"""Broken outputs: they never end a run, never hide its exit code, and never get what belongs into a file."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from comper.cli import PRINTING_COMMANDS, main
from comper.output import UnbreakableOutput, unbreakable_streams
from comper.runs.verify import verify_run

RUN = Path("comper-single", "asterix", "seed-0")
SOURCE = str(Path(__file__).parents[1] / "src")
SMALL = (
    "--screen-size 36 --episode-cap-frames 150 --replay-start-steps 16 --log-period-steps 10 --target-period-steps 20"
    " --memory-sets 60 --sets-per-training 30 --device cpu"
)

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs bash and /dev/full")


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a bash command in which `comper` is this package's."""
    script = f'set -o pipefail; comper() {{ "{sys.executable}" -m comper "$@"; }}; {command}'
    variables = {**os.environ, **environment}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False, env=variables)


@pytest.mark.slow
@pytest.mark.parametrize(
    "streams",
    ["2>&1 | head -1", "2>&-", ">&-", ">&- 2>&- <&-", ">/dev/full", ">/dev/full 2>/dev/full"],
)
def test_a_broken_output_does_not_end_a_run(streams: str, tmp_path: Path) -> None:
    result = shell(f"comper train asterix --agent comper-single --frames 300 {SMALL} --out {tmp_path} {streams}")
    assert result.returncode == 0
    assert "Traceback" not in result.stdout + result.stderr
    verdict = verify_run(tmp_path / RUN)
    assert verdict.damaged == {}
    assert verdict.manifest is not None
    assert verdict.manifest.is_finished


@pytest.mark.slow
def test_a_closed_terminal_saves_and_ends_with_130(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["train", "asterix", "--agent", "comper-single", "--frames", "100000", *SMALL.split(), "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "comper", *words], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    log = tmp_path / RUN / "metrics.jsonl"
    while not (log.exists() and log.stat().st_size):
        assert process.poll() is None
        time.sleep(0.05)
    os.close(ours)  # the kernel sends SIGHUP, and every write fails with EIO
    assert process.wait(60) == 130
    assert verify_run(tmp_path / RUN).checkpoints


@pytest.mark.parametrize("words", ["games", "describe comper-single", "agents"])
def test_lost_output_of_a_command_that_prints_is_exit_code_4(words: str) -> None:
    result = shell(f"comper {words} >/dev/full")
    assert result.returncode == 4
    assert result.stderr == "comper: Standard output: cannot be written (No space left on device). Make room.\n"
    assert words.split()[0] in PRINTING_COMMANDS


def test_a_reader_who_goes_away_is_no_error() -> None:
    result = shell("comper games | head -1")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("words", ["", "--help", "train --help", "--version"])
@pytest.mark.parametrize("stream", [">/dev/full", ">&-", "| head -c 1"])
def test_help_into_a_broken_output_is_no_traceback(words: str, stream: str) -> None:
    result = shell(f"comper {words} {stream}")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_working_folder_that_was_deleted_is_one_sentence(tmp_path: Path) -> None:
    result = shell(
        f"mkdir '{tmp_path}/gone'; cd '{tmp_path}/gone'; rmdir ../gone; comper train asterix --frames 300", PYTHONPATH=SOURCE
    )
    assert result.returncode == 2
    assert result.stderr == "comper: The working folder is gone (No such file or directory): change to another.\n"


def test_the_exit_code_of_an_error_outlives_the_output_that_was_to_name_it() -> None:
    assert shell("comper nonsense 2>/dev/full").returncode == 2
    assert shell("comper nonsense 2>&-").returncode == 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp437"])
def test_letters_that_an_output_does_not_have_become_question_marks(encoding: str) -> None:
    for words in ("describe comper-single", "train --help"):
        result = subprocess.run(
            [sys.executable, "-m", "comper", *words.split()],
            capture_output=True, timeout=60, check=False, env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert (result.returncode, result.stderr) == (0, b"")
        assert b"?, the discount factor" in result.stdout or b"\xe2, the discount factor" in result.stdout


def test_a_print_of_anyone_goes_through_the_unbreakable_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with unbreakable_streams() as out:
            print("x" * 100_000, flush=True)
            assert isinstance(sys.stdout, UnbreakableOutput)
        assert out.failure is not None


@pytest.mark.slow
def test_an_unknown_backend_of_matplotlib_does_not_matter(tmp_path: Path) -> None:
    assert (
        main(
            [
                "train",
                "asterix",
                "--agent",
                "comper-single",
                "--frames",
                "300",
                *SMALL.split(),
                "--out",
                str(tmp_path / "runs"),
            ]
        )
        == 0
    )
    result = shell(f"comper report {tmp_path / 'runs'} --out {tmp_path / 'report'}", MPLBACKEND="nonsense")
    assert result.returncode == 0
    assert json.loads((tmp_path / "report" / "report.json").read_text())["files"]
