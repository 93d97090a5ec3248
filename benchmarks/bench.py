"""All CPU targets of this project in one table: `make bench`, or `python benchmarks/bench.py --out bench.json`.

Every row is a ratio of two sides (see sides.py), each in a process of its own, that are asked in turn: A, B, A, B, ... A ratio
is taken from each pair of neighbours; the row shows their median and quartiles. What else runs on the machine then slows both
sides alike. Seconds are those of the clock; the ratio of processor seconds is in the file too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GAMES = ("freeway", "asteroids", "battle_zone", "video_pinball", "seaquest", "asterix", "beam_rider", "space_invaders")
PACKAGES = ("torch", "numpy", "ale-py", "opencv-python-headless", "stable-baselines3", "gymnasium", "faiss-cpu")
EMULATOR_GOAL = 1.9
Answer = dict[str, Any]


@dataclass
class Row:
    """One line of the table."""

    name: str
    ours: str
    theirs: str
    ratio: float
    low: float
    high: float
    target: str
    is_met: bool | None
    """None: a row for information, without a target."""
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def say(text: str) -> None:
    """A line of progress, with the minutes since the start."""
    print(f"[{(time.perf_counter() - BEGAN) / 60:5.1f} min] {text}", file=sys.stderr, flush=True)


BEGAN = time.perf_counter()


# Sides, asked in turn.


def child_environment() -> dict[str, str]:
    """Threads that wait must sleep: spinning ones would take the processor from the other side."""
    return {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore"}


class Side:
    """One side's process."""

    def __init__(self, name: str, argument: str) -> None:
        command = [sys.executable, str(HERE / "sides.py"), name, argument]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
        )

    def wait_until_ready(self) -> None:
        self._read()

    def segment(self) -> Answer:
        assert self._process.stdin
        print(file=self._process.stdin, flush=True)
        answer: Answer = self._read()
        return answer

    def _read(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"A side of the comparison failed with status {self._process.wait()}.")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def sides(*specs: tuple[str, str]) -> Iterator[list[Side]]:
    """Start the sides one after another, so that none is set up while another is measured."""
    with ExitStack() as stack:
        started = []
        for name, argument in specs:
            side = Side(name, argument)
            stack.callback(side.close)
            side.wait_until_ready()
            started.append(side)
        yield started


def interleave(started: Sequence[Side], rounds: int) -> list[list[Answer]]:
    """Answers of each side; the first round warms up and does not count."""
    answers: list[list[Answer]] = [[] for _ in started]
    for number in range(rounds + 1):
        for side, list_ in zip(started, answers, strict=True):
            answer = side.segment()
            if number:
                list_.append(answer)
    return answers


def speeds(answers: Sequence[Answer], key: str = "seconds") -> list[float]:
    return [float(answer["units"] / answer[key]) for answer in answers]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, median, high = np.percentile(values, [25, 50, 75])
    return float(low), float(median), float(high)


def compare(
    name: str, ours: Sequence[Answer], theirs: Sequence[Answer], *, at_least: float, unit: str, note: str = "", **details: Any
) -> Row:
    """A row of speed ratios, ours to theirs, pair by pair."""
    low, median, high = quartiles([a / b for a, b in zip(speeds(ours), speeds(theirs), strict=True)])
    processor = [a / b for a, b in zip(speeds(ours, "cpu_seconds"), speeds(theirs, "cpu_seconds"), strict=True)]
    our_speed, their_speed = (f"{quartiles(speeds(answers))[1]:.4g} {unit}" for answers in (ours, theirs))
    more = {"ratio_of_processor_seconds": quartiles(processor), "ours": list(ours), "theirs": list(theirs), **details}
    return Row(name, our_speed, their_speed, median, low, high, f">= {at_least:g}", median >= at_least, note, more)


# Rows.


def emulator_rows(rounds: int) -> list[Row]:
    rows, floors = [], []
    for game in GAMES:
        with sides(("emulator_ours", game), ("emulator_ale", game), ("emulator_bare", game)) as started:
            ours, ale, bare = interleave(started, rounds)
        if [a["pixels"] for a in ours] != [a["pixels"] for a in ale]:
            raise SystemExit(f"{game}: the observations are not equal to ALE's.")
        floor = compare("", bare, ale, at_least=EMULATOR_GOAL, unit="").ratio
        floors.append(floor)
        note = f"emulation alone, no picture taken: {floor:.2f}"
        rows.append(
            compare(f"emulator step, {game}", ours, ale, at_least=EMULATOR_GOAL, unit="steps/s", note=note, floor=floor)
        )
        say(f"{rows[-1].name}: {rows[-1].ratio:.2f}, {note}; equal pixels")
    low, mean, high = (
        math.prod(values) ** (1 / len(rows)) for values in zip(*((r.low, r.ratio, r.high) for r in rows), strict=True)
    )
    floor = math.prod(floors) ** (1 / len(floors))
    note = f"emulation alone, no picture taken: {floor:.2f}"
    target, is_met = f">= {EMULATOR_GOAL:g}", mean >= EMULATOR_GOAL
    return [Row("emulator step, geometric mean", "", "", mean, low, high, target, is_met, note, {"floor": floor}), *rows]


def training_rows(rounds: int, game: str) -> list[Row]:
    with sides(("dqn_ours", game), ("dqn_sb3", game), ("comper_ours", f"{game}:2000")) as started:
        dqn, sb3, comper = interleave(started, rounds)
    rows = [
        compare("DQN training against SB3 DQN", dqn, sb3, at_least=1.7, unit="steps/s", note="products alone, by parts: 1.9"),
        compare("COMPER (single) against SB3 DQN", comper, sb3, at_least=1.2, unit="steps/s"),
    ]
    for row in rows:
        say(f"{row.name}: {row.ratio:.2f}")
    return rows


def late_rows(rounds: int, game: str) -> list[Row]:
    with sides(("comper_ours", f"{game}:20000"), ("comper_ours", f"{game}:2000")) as started:
        late, early = interleave(started, rounds)
    row = compare("COMPER, 20,000 steps against 2,000", late, early, at_least=0.9, unit="steps/s")
    say(f"{row.name}: {row.ratio:.2f}")
    return [row]


def qlstm_rows(rounds: int, game: str) -> list[Row]:
    with sides(("qlstm_ours", game), ("qlstm_torch", game)) as started:
        ours, theirs = interleave(started, rounds)
    row = compare("QLSTM training call, 1,000 sets", ours, theirs, at_least=5, unit="calls/s")
    say(f"{row.name}: {row.ratio:.2f}")
    return [row]


def memory_rows(rounds: int, game: str) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frames.npy"
        run_child("sides.py", "record", f"{game}:10001:{path}")
        for agent, compression, limit in (
            ("single", "none", 7400), ("rolling", "none", 7400), ("single", "zlib", 1200), ("rolling", "zlib", 1200),
        ):  # fmt: skip
            ours = [run_child("memory_side.py", f"ours-{agent}-{compression}", str(path)) for _ in range(rounds)]
            theirs = run_child("memory_side.py", f"sb3-{agent}", str(path))
            rows += _memory_pair(agent, compression, limit, ours, theirs)
            say(f"{rows[-2].name}: {rows[-2].ours}, batch {rows[-1].ours}")
    return rows


def _memory_pair(agent: str, compression: str, limit: int, ours: Sequence[Answer], theirs: Answer) -> list[Row]:
    held = [answer["bytes"] for answer in ours]
    low, ratio, high = quartiles([theirs["bytes"] / b for b in held])
    _, median, _ = quartiles(held)
    kind = f"{agent}, {compression if compression != 'none' else 'not compressed'}"
    size = Row(
        f"bytes per transition, {kind}", f"{median:,.0f} B", f"{theirs['bytes']:,} B", ratio, low, high,
        f"<= {limit:,} B", median <= limit, "", {"ours": list(ours), "theirs": theirs},
    )  # fmt: skip
    batch = [answer["batch_ms"][1] for answer in ours]
    low, ratio, high = quartiles([theirs["batch_ms"][1] / ms for ms in batch])
    ms = quartiles(batch)[1]
    frames = 64 if agent == "single" else 160
    speed = Row(
        f"batch of 32, {kind}", f"{ms:.2f} ms", f"{theirs['batch_ms'][1]:.2f} ms", ratio, low, high,
        "< 0.7 ms" if compression != "none" else "", ms < 0.7 if compression != "none" else None, f"{frames} different frames",
    )  # fmt: skip
    return [size, speed]


def run_child(script: str, *arguments: str) -> Answer:
    """The last line of JSON of a script that runs once."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=child_environment())
    answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def index_rows(size: int, game: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "index.json"
        command = [sys.executable, str(HERE / "index_benchmark.py"), "--sizes", "1000", str(size), "--game", game]
        options = ["--thresholds", "0.5", "--hard", "0.8", "--steps", "300", "--faiss-bytes", "600000000", "--out", str(out)]
        subprocess.run([*command, *options], check=True, env=child_environment(), stdout=sys.stderr)
        found = json.loads(out.read_text())["rows"]
    rows = [_index_row(row, found) for row in found if row["index"] != "faiss" and row["size"] == size]
    for row in rows:
        say(f"{row.name}: {row.ours}, {row.ratio:,.0f} x")
    return rows


def _index_row(row: Answer, found: Sequence[Answer]) -> Row:
    case = (row["scene"], row["num_values"])
    faiss = [other for other in found if other["index"] == "faiss" and (other["scene"], other["num_values"]) == case][-1]
    small = next(
        r
        for r in found
        if (r["scene"], r["num_values"], r["threshold"], r["index"]) == (*case, row["threshold"], row["index"])
    )
    is_exact = row["index"] == "exact"
    limit_ms, times = (0.010, 0) if is_exact else (1.0, 300)
    low, high = row["faiss_ratio_range"]
    theirs = f"{faiss['median_ms']:.0f} ms at {faiss['size']:,}"
    return Row(
        f"{'exact' if is_exact else 'threshold'} index at {row['size']:,}, {row['scene']}, {row['num_values']:,} values,"
        f" δ = {row['threshold']:.2f}",
        f"{1e3 * row['median_ms']:.1f} µs", theirs, row["faiss_ratio"], low, high,
        "<= 10 µs" if is_exact else "<= 1 ms, >= 300", row["median_ms"] <= limit_ms and row["faiss_ratio"] >= times,
        f"at 1,000: {1e3 * small['median_ms']:.1f} µs; faiss in proportion to the size", {"ours": row, "theirs": faiss},
    )  # fmt: skip


# The table.


def print_table(rows: Sequence[Row]) -> None:
    header = ("row", "ours", "theirs", "ratio", "quartiles", "target", "met", "note")
    lines = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(header) - 1)]
    for line in lines:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip())


def print_markdown(path: Path) -> None:
    """The table of a stored run as docs/performance.md shows it."""
    print("| row | ours | theirs | ratio | quartiles | target | met | note |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in json.loads(path.read_text())["rows"]:
        print("| " + " | ".join(_cells(Row(**row))) + " |")


def _cells(row: Row) -> tuple[str, ...]:
    met = {None: "", True: "yes", False: "NO"}[row.is_met]
    return (
        row.name,
        row.ours,
        row.theirs,
        _number(row.ratio),
        f"{_number(row.low)} - {_number(row.high)}",
        row.target,
        met,
        row.note,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def machine() -> dict[str, Any]:
    """What was measured on."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    packages = {name: version(name) for name in PACKAGES}
    return {"cpus": os.cpu_count(), "processor": model, "python": platform.python_version(), "packages": packages}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--game", default="freeway", help="for everything but the emulator and the indexes")
    parser.add_argument("--only", nargs="+", help="some of: emulator, training, late, qlstm, memory, index")
    parser.add_argument("--markdown", type=Path, help="measure nothing: print the table of a stored run")
    args = parser.parse_args()
    if args.markdown:
        return print_markdown(args.markdown)
    groups: dict[str, Callable[[], list[Row]]] = {
        "emulator": lambda: emulator_rows(rounds=7),
        "training": lambda: training_rows(rounds=6, game=args.game),
        "late": lambda: late_rows(rounds=5, game=args.game),
        "qlstm": lambda: qlstm_rows(rounds=7, game=args.game),
        "memory": lambda: memory_rows(rounds=3, game=args.game),
        "index": lambda: index_rows(100_000, "asterix"),
    }
    load = [os.getloadavg()[0]]
    rows: list[Row] = []
    for name in args.only or groups:
        say(f"{name} ...")
        rows += groups[name]()
    load.append(os.getloadavg()[0])
    print_table(rows)
    print(f"load average before and after: {load[0]:.1f}, {load[1]:.1f}; {(time.perf_counter() - BEGAN) / 60:.1f} minutes")
    command = " ".join(["python", *sys.argv])
    report = {"command": command, "machine": machine(), "load_average": load, "rows": [asdict(row) for row in rows]}
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
