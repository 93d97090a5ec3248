"""`comper report` and `comper import-release` for cli.py: their arguments, and a function from arguments to exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from comper.errors import counted, printable
from comper.report.findings import NOTE, Finding
from comper.report.published.release import import_release
from comper.report.report import report


@dataclass(frozen=True)
class Command:
    """A subcommand: `add_arguments(parser)`, then `run(args)` for its exit code."""

    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `comper report`."""
    parser.add_argument("folders", nargs="+", type=_path, metavar="DIR", help="a folder with run folders in it, at any depth")
    text = "where index.html, tables/ and figures/ are written (default: %(default)s)"
    parser.add_argument("--out", type=_path, default=Path("report"), metavar="OUT", help=text)
    parser.add_argument("--floors", type=_path, metavar="FILE", help="floors that `comper floors --out FILE` measured")
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of the bootstrap intervals (default: 0)")
    parser.add_argument("--no-progress", dest="progress", action="store_false", help="do not show progress")


def run_report(args: argparse.Namespace) -> int:
    """Write a report and say where it is and what its reader must know; 3 where a run was left out as wrong."""
    result = report(args.folders, args.out, floors=args.floors, seed=args.seed, progress=args.progress)
    _print_findings([finding for finding in result.findings if finding.severity != NOTE])
    running = f", {result.running} unfinished ones named but not averaged in" if result.running else ""
    made = f"{counted(len(result.tables), 'table')}, {counted(len(result.figures), 'figure')}"
    print(printable(f"{result.page}: {counted(result.trials, 'trial')}{running}; {made}."))
    if args.open:
        print(printable(open_in_browser(result.page)))
    return result.exit_code


def open_in_browser(page: Path) -> str:
    """Show a page, and say whether that could be done."""
    import webbrowser

    address = page.resolve().as_uri()
    try:
        is_shown = webbrowser.open(address)
    except webbrowser.Error:
        is_shown = False
    return f"Shown in a browser: {address}" if is_shown else f"No browser was found here. Open this in one: {address}"


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `comper import-release`."""
    parser.add_argument("source", type=_path, metavar="DIR", help="a folder with the published logs, GAME-TRIAL/progress.json")
    parser.add_argument("--agent", required=True, metavar="NAME", help="the name these trials get in reports")
    parser.add_argument("--out", type=_path, required=True, metavar="RUNS", help="where run folders are written")
    parser.add_argument("--frames", type=_frames, default=100_000, metavar="N", help="their frame budget (default 100000)")


def run_import(args: argparse.Namespace) -> int:
    """Import published logs and say what was noticed; 3 where a log is damaged."""
    result = import_release(args.source, agent=args.agent, out=args.out, frames=args.frames)
    _print_findings(result.findings)
    print(printable(f"{args.out}: {counted(len(result.folders), 'trial')} of {args.agent}."))
    return result.exit_code


COMMANDS = {
    "report": Command(
        "Write one self-contained page, its tables (CSV, LaTeX) and its figures (SVG,\nPNG) from run folders. Damaged runs "
        "are left out and named, and the exit\ncode is 3.\n\nexample:\n  comper report runs --out report",
        add_report_arguments,
        run_report,
    ),
    "import-release": Command(
        "Turn the logs published with the paper (JSON lines, one\nprogress.json per trial) into ordinary run folders.\n\n"
        "example:\n  comper import-release released-logs/single_frames --agent released-single --out runs",
        add_import_arguments,
        run_import,
    ),
}
"""By name; give a parser `description` and `formatter_class=argparse.RawDescriptionHelpFormatter`."""


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings:
        where = f" ({finding.where})" if finding.where and finding.where not in finding.text else ""
        print(printable(f"{finding.severity}: {finding.text}{where}"), file=sys.stderr)


def _seed(text: str) -> int:
    return _whole_number(text, least=0)


def _frames(text: str) -> int:
    return _whole_number(text, least=1)


def _whole_number(text: str, *, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number, {least} or more")
    return number


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("a folder or file needs a name")
    return Path(text)
