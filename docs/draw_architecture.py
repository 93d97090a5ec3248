"""Draw the rooms of the code and who imports whom, from the imports in the source itself.

python docs/draw_architecture.py            # writes docs/architecture.svg and the table in docs/architecture.md
python docs/draw_architecture.py --table    # prints the table with exact numbers of lines

Every import counts: at the top of a file, inside a function, and under TYPE_CHECKING. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "comper"
SVG_FILE = DOCS / "architecture.svg"
PAGE = DOCS / "architecture.md"
TABLE_MARKS = ("<!-- table: rooms -->", "<!-- end of table -->")

WIRING = "cli"
"""The room of the modules at the top of the package that only connect others: command line and public names."""
WIRING_MODULES = ("", "__main__", "cli", "commands")

GROUND = tuple(sorted({path.stem for path in SOURCE.glob("*.py")} - {"__init__", *WIRING_MODULES}))
"""The other modules at the top: every room may stand on them. They are drawn as a floor, without arrows."""

SUMMARIES = {
    "errors": "what can go wrong",
    "settings": "types, checks, flags, TOML",
    "protocol": "the paper's numbers",
    "importing": "code of users, by name",
    "output": "streams that cannot break",
    "native": "loops in C, the same bits",
    "processes": "how a process is started",
    "progress": "what a terminal shows",
    "environments": "one name, one environment",
    "memory": "frames, TM, TMI, RTM, replay",
    "integrations": "for SB3 and TorchRL",
    "networks": "torch modules, stacked",
    "learners": "a batch in, an update out",
    "agents": "one file per agent",
    "runs": "a run's life on disk",
    "training": "the loop and its population",
    "studies": "plans, here or on a cluster",
    "report": "tables, figures, page",
    "viewing": "films and pictures of runs",
    WIRING: "commands and public names",
}

COLUMNS = {
    "memory": 0.0, "networks": 1.0, "learners": 0.5, "agents": 0.5, "training": 1.25, "studies": 2.25, WIRING: 1.75,
    "environments": 2.0, "runs": 3.0, "report": 3.6,
}  # fmt: skip
"""Where a room stands in its layer. A room that is not listed stands to the right of the others."""


@dataclass(frozen=True)
class Room:
    """A package, or a module at the top: its size and the other rooms that it imports."""

    name: str
    files: int
    lines: int
    imports: frozenset[str]


# Reading the source


def imported_modules(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in the file, as dotted names without `comper.`."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "comper":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "comper"}
    return {name.removeprefix("comper.") for name in found} - {"comper", "__version__"}


def read_modules(source: Path = SOURCE) -> dict[str, set[str]]:
    """Module -> modules it imports. A name imported from a module stands for the module."""
    paths = {_module_name(path.relative_to(source)): path for path in sorted(source.rglob("*.py"))}
    modules = {}
    for name, path in paths.items():
        modules[name] = {_owner(found, paths) for found in imported_modules(path)} - {name}
    return modules


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)  # "" is the package itself


def _owner(name: str, modules: Mapping[str, object]) -> str:
    """The longest prefix of a dotted name that is a module."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def room_of(module: str) -> str:
    """The room that a module belongs to."""
    top = module.split(".")[0]
    return WIRING if top in WIRING_MODULES else top


def read_rooms(source: Path = SOURCE) -> dict[str, Room]:
    """Every room, with its size and its arrows."""
    modules = read_modules(source)
    rooms = {}
    for name in sorted({room_of(module) for module in modules}):
        inside = [module for module in modules if room_of(module) == name]
        imports = {room_of(found) for module in inside for found in modules[module]} - {name}
        lines = sum(len(_file_of(module, source).read_text(encoding="utf-8").splitlines()) for module in inside)
        rooms[name] = Room(name, len(inside), lines, frozenset(imports))
    return rooms


def _file_of(module: str, source: Path) -> Path:
    path = source.joinpath(*module.split(".")) if module else source
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# Graphs


def find_cycle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Names along a cycle, the first one repeated at the end; empty when there is none."""
    finished: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in finished:
            return []
        for following in sorted(arrows.get(name, ())):
            if cycle := visit(following, [*way, name]):
                return cycle
        finished.add(name)
        return []

    return next((cycle for name in sorted(arrows) if (cycle := visit(name, []))), [])


def layers(arrows: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Each name's layer: one above the highest of what it imports."""
    if cycle := find_cycle(arrows):
        raise ValueError(f"The rooms import each other in a circle: {' -> '.join(cycle)}.")
    found: dict[str, int] = {}

    def layer(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((layer(below) for below in arrows[name]), default=-1)
        return found[name]

    return {name: layer(name) for name in arrows}


def needed_arrows(arrows: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The arrows that do not follow from others (transitive reduction)."""

    def reaches(start: str, end: str) -> bool:
        return any(step == end or reaches(step, end) for step in arrows[start])

    return {
        name: {end for end in ends if not any(reaches(other, end) for other in ends if other != end)}
        for name, ends in ((name, set(ends)) for name, ends in arrows.items())
    }


# The table


def table(rooms: Mapping[str, Room], *, exact: bool) -> str:
    """Rooms with files, lines and arrows, as Markdown, lowest layer first."""
    order = layers({name: room.imports for name, room in rooms.items()})
    rows = ["| room | what | files | lines | imports |", "| --- | --- | --- | --- | --- |"]
    for room in sorted(rooms.values(), key=lambda room: (order[room.name], room.name)):
        lines = f"{room.lines:,}" if exact else about(room.lines)
        what, imports = SUMMARIES.get(room.name, ""), _listed(room.imports) or "nothing"
        rows.append(f"| `{room.name}` | {what} | {room.files} | {lines} | {imports} |")
    return "\n".join(rows) + "\n"


def about(lines: int) -> str:
    """A number of lines to the nearest hundred, so that small edits leave picture and table as they are."""
    return f"{round(lines, -2):,}" if lines >= 50 else "under 50"


def _listed(names: Iterable[str]) -> str:
    ground = [name for name in GROUND if name in set(names)]
    return ", ".join([*sorted(set(names) - set(GROUND)), *ground]) if len(ground) < 5 else _with_most(names, ground)


def _with_most(names: Iterable[str], ground: Sequence[str]) -> str:
    """A room that stands on most of the ground names what it does not need."""
    missing = [name for name in GROUND if name not in ground]
    floor = "the ground" + (f" but {', '.join(missing)}" if missing else "")
    return ", ".join([*sorted(set(names) - set(GROUND)), floor])


# The picture

BOX_WIDTH, BOX_HEIGHT, COLUMN, ROW, MARGIN = 200, 98, 222, 158, 24
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
  .name { font-size: 16px; font-weight: 600; }
  .what { font-size: 12px; }
  .size, .note { font-size: 11.5px; fill: #59636e; }
  .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2; }
  .ground { fill: #eaeef2; stroke: #8c959f; stroke-width: 1.2; }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .head { fill: #57606a; }
  .paper { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .size, .note { fill: #9198a1; }
    .box { fill: #161b22; stroke: #6e7681; }
    .ground { fill: #21262d; stroke: #6e7681; }
    .arrow { stroke: #9198a1; }
    .head { fill: #9198a1; }
    .paper { fill: #0d1117; }
  }
"""


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float = BOX_WIDTH
    height: float = BOX_HEIGHT

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def draw(rooms: Mapping[str, Room]) -> str:
    """The picture as SVG: rooms in layers, an arrow from each room to what it imports, the ground below."""
    upper = {name: room.imports - set(GROUND) for name, room in rooms.items() if name not in GROUND}
    boxes = _placed(layers(upper))
    width = max(box.x + box.width for box in boxes.values()) + MARGIN
    floor = max(box.y for box in boxes.values()) + ROW - 20
    parts = [_arrow(*ends) for ends in _ports(needed_arrows(upper), boxes)]
    parts += [_drawn(rooms[name], box, "box") for name, box in sorted(boxes.items())]
    parts += [_drawn(rooms[name], box, "ground") for name, box in _ground(rooms, width, floor).items()]
    return _page(width, floor + BOX_HEIGHT + 48, parts)


def _placed(layer: Mapping[str, int]) -> dict[str, Box]:
    top, boxes = max(layer.values()), {}
    right = max(COLUMNS.values()) + 1
    for height in range(top + 1):
        names = sorted(name for name, found in layer.items() if found == height)
        unlisted = [name for name in names if name not in COLUMNS]
        for name in names:
            column = COLUMNS.get(name, right + (unlisted.index(name) if name in unlisted else 0))
            boxes[name] = Box(MARGIN + column * COLUMN, MARGIN + (top - height) * ROW)
    return boxes


def _ground(rooms: Mapping[str, Room], width: float, y: float) -> dict[str, Box]:
    names = [name for name in GROUND if name in rooms]
    each = (width - 2 * MARGIN - 16 * (len(names) - 1)) / len(names)
    return {name: Box(MARGIN + i * (each + 16), y, each) for i, name in enumerate(names)}


def _ports(arrows: Mapping[str, set[str]], boxes: Mapping[str, Box]) -> list[tuple[float, float, float, float]]:
    """Start and end of every arrow, spread over the edges of its boxes from left to right."""
    ends = []
    for start in sorted(arrows):
        targets = sorted(arrows[start], key=lambda name: (boxes[name].middle, name))
        for i, end in enumerate(targets):
            sources = sorted((s for s in arrows if end in arrows[s]), key=lambda name: (boxes[name].middle, name))
            x1 = boxes[start].x + BOX_WIDTH * (i + 1) / (len(targets) + 1)
            x2 = boxes[end].x + BOX_WIDTH * (sources.index(start) + 1) / (len(sources) + 1)
            ends.append((x1, boxes[start].y + BOX_HEIGHT, x2, boxes[end].y))
    return ends


def _arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A curve in the gap below the start, then straight down to the end: no box stands in the way."""
    gap = ROW - BOX_HEIGHT
    turn = y1 + gap - 14
    bend = f"C {x1:.0f} {y1 + gap / 2:.0f} {x2:.0f} {y1 + gap / 2 - 14:.0f} {x2:.0f} {turn:.0f}"
    head = f"{x2 - 4.5:.1f},{y2 - 9:.0f} {x2 + 4.5:.1f},{y2 - 9:.0f} {x2:.1f},{y2:.0f}"
    return (
        f'<path class="arrow" d="M {x1:.0f} {y1:.0f} {bend} L {x2:.0f} {y2 - 8:.0f}"/>\n'
        f'<polygon class="head" points="{head}"/>'
    )


def _drawn(room: Room, box: Box, kind: str) -> str:
    size = f"{room.files} file{'s' if room.files > 1 else ''}, {about(room.lines)} lines"
    ground = [name for name in GROUND if name in room.imports]
    lines = [("name", room.name, 22), ("what", SUMMARIES.get(room.name, ""), 40), ("size", size, 57)]
    rows = [", ".join(ground[i : i + 3]) for i in range(0, len(ground), 3)]
    lines += [("size", f"{'and' if i else 'on'} {row}", 73 + 16 * i) for i, row in enumerate(rows)]
    texts = "\n".join(
        f'<text class="{style}" x="{box.middle:.0f}" y="{box.y + down:.0f}" text-anchor="middle">{text}</text>'
        for style, text, down in lines
        if text
    )
    frame = f'<rect class="{kind}" x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height}" rx="8"/>'
    return f"{frame}\n{texts}"


def _page(width: float, height: float, parts: Iterable[str]) -> str:
    note = "An arrow goes from a room to a room that it imports; one that follows from other arrows is left out."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="The rooms of the code and who imports whom">'
    )
    paper = f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>'
    text = f'<text class="note" x="{MARGIN}" y="{height - 16:.0f}">{note}</text>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, text, "</svg>"]) + "\n"


# The command


def with_table(page: str, rows: str) -> str:
    """The page with its table of rooms replaced."""
    before, rest = page.split(TABLE_MARKS[0])
    return f"{before}{TABLE_MARKS[0]}\n{rows}{TABLE_MARKS[1]}{rest.split(TABLE_MARKS[1])[1]}"


def main() -> None:
    """Draw the picture and refresh the table, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the table of rooms with exact numbers of lines")
    rooms = read_rooms()
    if parser.parse_args().table:
        print(table(rooms, exact=True), end="")
        return
    SVG_FILE.write_text(draw(rooms), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table(rooms, exact=False)), encoding="utf-8")
    print(f"written: {SVG_FILE.name}, {PAGE.name}")


if __name__ == "__main__":
    main()
