"""Signals are noted, and acted on between two steps."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from comper.cli import main
from comper.errors import StoppedError
from comper.training.signals import StopRequest, stop_requests
from tests.training.small_runs import RUN, SMALL


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Exit codes with which the process would have ended at once; the folder of multiprocessing is another meanwhile."""
    folder = str(tmp_path / "sockets")
    monkeypatch.setitem(multiprocessing.current_process()._config, "tempdir", folder)  # type: ignore[attr-defined]
    codes: list[int] = []
    monkeypatch.setattr("comper.training.signals.os._exit", codes.append)
    monkeypatch.setattr("comper.training.signals.os.write", lambda stream, text: None)
    return codes


def test_the_first_signal_is_noted_and_later_ones_change_nothing(ended: list[int]) -> None:
    request, names = StopRequest(), []
    for number in (signal.SIGTERM, signal.SIGHUP):
        names.append(request.name)
        request.note(number)
    assert [*names, request.name] == [None, "SIGTERM", "SIGTERM"]
    assert ended == []


def test_a_second_interrupt_alone_ends_the_process_at_once(ended: list[int]) -> None:
    request = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM):
        request.note(number)
        assert ended == []
    request.note(signal.SIGINT)
    assert ended == [130]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_to_the_process_is_noted_and_the_handlers_before_come_back(name: str) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with contextlib.suppress(StoppedError), stop_requests() as request:
        signal.raise_signal(number)
        assert request.name == name
        raise StoppedError("as a run does then")
    assert signal.getsignal(number) is before


def test_outside_the_main_thread_nothing_is_listened_to() -> None:
    before, found = signal.getsignal(signal.SIGTERM), []

    def listen() -> None:
        with stop_requests() as request:
            found.append((request.name, signal.getsignal(signal.SIGTERM) is before))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [(None, True)]


def test_two_interrupts_leave_at_once_and_damage_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "comper",
        "train",
        "asterix",
        "--agent",
        "comper-single",
        "--out",
        str(tmp_path),
        "--device",
        "cpu",
    ]
    command += [
        word for key, value in (SMALL | {"frames": 100_000}).items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / RUN / "metrics.jsonl").exists() or not (tmp_path / RUN / "metrics.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGSTOP)  # so that both are waiting when it goes on
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert time.monotonic() - began < 5
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    assert main(["verify", str(tmp_path)]) == 0


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_signal_that_the_caller_ignores_stays_ignored(name: str) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stop_requests() as request:
            signal.raise_signal(number)
            assert request.name is None
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_leaving_at_once_removes_the_folder_of_multiprocessing(ended: list[int], tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir()
    request = StopRequest()
    for _ in range(2):
        request.note(signal.SIGINT)
    assert (ended, list(tmp_path.iterdir())) == ([130], [])
