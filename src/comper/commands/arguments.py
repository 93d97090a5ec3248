"""Arguments that several commands have."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from comper.errors import UsageError
from comper.settings import whole_number

if TYPE_CHECKING:
    from comper.training.hooks import HookMaker
    from comper.training.options import RunOptions


NUMBERS = {"whole number": "a number like 20000 or 2e4", "float": "a number like 0.001 or 1e-3"}
"""What argparse calls the types of values -> what may be typed."""


class Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors that come back as UsageError."""

    def error(self, message: str) -> NoReturn:
        for what, plain in NUMBERS.items():
            message = re.sub(rf"invalid {what} value: (.*)", rf"invalid {what} value: \1, not {plain}", message)
        raise UsageError(f"{message}. See `{self.prog} --help`.")


def folder(text: str) -> Path:
    """The name of a folder or file, which may not be empty: that would be the working folder."""
    if not text:
        raise argparse.ArgumentTypeError("a folder or file needs a name")
    return Path(text)


def example(parser: argparse.ArgumentParser, *lines: str) -> None:
    """Show examples under the help text."""
    parser.epilog = ("examples:\n" if len(lines) > 1 else "example:\n") + "\n".join(f"  {line}" for line in lines)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """How a run is carried out; none of it changes results."""
    add_device(parser)
    text = "processes for the trials (default: on a CPU one per core)"
    parser.add_argument("--processes", type=whole_number, metavar="N", help=text)
    text = "processes for the environments; 0: none (default: by cores)"
    parser.add_argument("--workers", type=whole_number, metavar="N", help=text)
    text = "agent steps between checkpoints; 0: never (default: 5,000 steps or 2 minutes, under 1 %% of the time)"
    parser.add_argument("--checkpoint-period-steps", type=whole_number, metavar="N", help=text)
    parser.add_argument("--tensorboard", metavar="DIR", help="write curves for TensorBoard below this folder")
    parser.add_argument("--wandb", metavar="PROJECT", help="send curves to this project of Weights & Biases")


def tracking_hooks(args: argparse.Namespace) -> list[HookMaker]:
    """What --tensorboard and --wandb ask for."""
    from comper.training.trackers import TensorBoard, WeightsAndBiases

    makers: list[HookMaker] = [] if args.tensorboard is None else [TensorBoard(args.tensorboard)]
    return makers if args.wandb is None else [*makers, WeightsAndBiases(args.wandb)]


def add_number(parser: argparse.ArgumentParser, flag: str, default: float, text: str, metavar: str = "") -> None:
    """A flag whose help tells its default, a whole number or not."""
    kind, name = (whole_number, "N") if isinstance(default, int) else (float, "X")
    parser.add_argument(flag, type=kind, default=default, metavar=metavar or name, help=f"{text} (default: %(default)s)")


def run_options(args: argparse.Namespace, *, floors: Path | None = None) -> RunOptions:
    """What `add_run_options` and `add_threads` have read; `floors` are those that the user has measured."""
    from comper.environments.floors import all_floors
    from comper.training.hooks import checked_hooks
    from comper.training.options import RunOptions

    return RunOptions(
        args.device,
        args.workers,
        args.checkpoint_period_steps,
        processes=args.processes,
        threads=args.threads,
        hooks=checked_hooks(tracking_hooks(args)),
        floors=None if floors is None else all_floors(floors),
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """--device."""
    text = "where the networks are computed; auto: a GPU where there is one (default: auto)"
    parser.add_argument("--device", default="auto", metavar="auto|cpu|cuda", help=text)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """--threads N, which is for new runs: those that are resumed have theirs."""
    text = "threads of torch for each trial; the last bits of its results depend on them (default: 1 on a CPU)"
    parser.add_argument("--threads", type=whole_number, metavar="N", help=text)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """--trust MODULE."""
    text = "a module from outside comper that the run needs and that may be imported; may be repeated"
    parser.add_argument("--trust", action="append", default=[], metavar="MODULE", help=text)


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """--checkpoint STEP."""
    text = "the agent step of a checkpoint (default: the final weights, or the newest checkpoint of an unfinished run)"
    parser.add_argument("--checkpoint", type=whole_number, metavar="STEP", help=text)
