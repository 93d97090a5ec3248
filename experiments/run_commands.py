"""Run commands, one per line of standard input, several at a time: what `experiments/*/variants.py` prints.

python experiments/readings/variants.py | python experiments/run_commands.py --at-once 5 --logs runs/readings/logs

The output of each command goes to a file in `--logs`, named after its `--out` and its environments. A command that has
finished before is not run again. `--for-seconds` starts no further command after that time: on a machine with a time limit
a second call goes on. What was cut off is finished by `comper resume`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

OWN_COMMAND = "comper"


def words(line: str) -> list[str]:
    """A command as arguments; `comper` is the one of this Python."""
    first, *rest = shlex.split(line)
    return [sys.executable, "-m", OWN_COMMAND, *rest] if first == OWN_COMMAND else [first, *rest]


def name(line: str) -> str:
    """What a command is called: its output folder and environments, as the name of a file."""
    parts = shlex.split(line)
    out = [parts[parts.index("--out") + 1]] if "--out" in parts else []
    environments = list(takewhile(lambda part: not part.startswith("-"), parts[2:]))
    return re.sub(r"[^A-Za-z0-9._-]", "-", "-".join(out + environments))[:150]


def run(line: str, logs: Path, end: float) -> tuple[str, str]:
    """Run one command unless it is done or time is up; return its name and what came of it."""
    mark, log = logs / f"{name(line)}.done", logs / f"{name(line)}.log"
    if mark.exists():
        return name(line), "done before"
    if time.monotonic() > end:
        return name(line), "not started: no time left"
    threads = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out:
        start = time.monotonic()
        code = subprocess.run(
            words(line), stdout=out, stderr=subprocess.STDOUT, env=os.environ | threads, check=False
        ).returncode
    if code == 0:
        mark.write_text(f"{line}\n{time.monotonic() - start:.0f} s\n", encoding="utf-8")
    return name(line), f"{time.monotonic() - start:.0f} s" if code == 0 else f"exit code {code}, see {log}"


def main() -> int:
    """Run all lines; the exit code is 1 where one of them failed or was not started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=4, help="commands at a time (default: 4)")
    parser.add_argument("--logs", type=Path, default=Path("runs/logs"))
    parser.add_argument("--for-seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    lines = [line.strip() for line in sys.stdin if line.strip() and not line.startswith("#")]
    args.logs.mkdir(parents=True, exist_ok=True)
    end, is_complete = time.monotonic() + args.for_seconds, True
    with ThreadPoolExecutor(args.at_once) as pool:
        for number, (what, outcome) in enumerate(pool.map(lambda line: run(line, args.logs, end), lines), start=1):
            print(f"{number} of {len(lines)}: {what}: {outcome}", flush=True)
            is_complete &= outcome.endswith(" s") or outcome == "done before"
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
