"""Signals are noted, and acted on between two steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from comper.cli import main
from tests.training.small_runs import RUN, SMALL


def test_two_interrupts_leave_at_once_and_damage_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "comper", "train", "asterix", "--out", str(tmp_path), "--device", "cpu"]
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
