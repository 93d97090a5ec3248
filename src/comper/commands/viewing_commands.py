"""`comper watch` and `comper memory`: films and pictures of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from comper.commands.arguments import add_checkpoint, add_number, add_trust, example, folder
from comper.errors import printable
from comper.importing import require_extras


def add_watch(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper watch`."""
    example(
        parser,
        "comper watch runs/comper-single/asterix/seed-0",
        "comper watch runs/dqn/pong/seed-0 --out pong.gif --seconds 20 --checkpoint 5000",
    )
    parser.set_defaults(run=_watch)
    _add_run(parser)
    parser.add_argument(
        "--out", type=folder, default=Path("watch.mp4"), metavar="FILE", help="a .mp4 or .gif (default: %(default)s)"
    )
    add_number(parser, "--episodes", 1, "episodes to play")
    parser.add_argument(
        "--seconds", type=float, default=30.0, metavar="X", help="the film's greatest length (default: %(default)g)"
    )
    text = "pictures per second; 12: an Atari game at its own speed (default: %(default)g)"
    parser.add_argument("--fps", type=float, default=12.0, metavar="X", help=text)
    add_number(parser, "--epsilon", 0.001, "share of random actions")
    add_number(parser, "--seed", 0, "seed of the episodes")


def _watch(args: argparse.Namespace) -> int:
    require_extras("train", "watch")
    from comper.viewing.watching import watch

    path = watch(
        args.folder,
        args.out,
        episodes=args.episodes,
        seconds=args.seconds,
        fps=args.fps,
        epsilon=args.epsilon,
        checkpoint=args.checkpoint,
        seed=args.seed,
        device=args.device,
        trust=args.trust,
    )
    print(printable(f"written to {path}"))
    return 0


def add_memory(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper memory`."""
    example(parser, "comper memory runs/comper-single/asterix/seed-0 --out memory.png")
    parser.set_defaults(run=_memory)
    _add_run(parser)
    parser.add_argument("--out", type=folder, default=Path("memory.png"), metavar="FILE", help="a .png (default: %(default)s)")
    add_number(parser, "--sets", 12, "sets to show")


def _memory(args: argparse.Namespace) -> int:
    require_extras("train", "watch")
    from comper.viewing.memory_picture import draw_memory

    path = draw_memory(
        args.folder, args.out, num_sets=args.sets, checkpoint=args.checkpoint, device=args.device, trust=args.trust
    )
    print(printable(f"written to {path}"))
    return 0


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=folder, metavar="RUN", help="a run folder")
    add_checkpoint(parser)
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    add_trust(parser)
