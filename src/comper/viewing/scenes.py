"""One picture of a film: the screen, the Q-values, and the remembered transition that is most like it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comper.viewing.canvas import BLUE, INK, LINE, MUTED, ORANGE, Canvas, number, text_width
from comper.viewing.saved_memory import MemorySearch
from comper.viewing.screens import Picture, picture_of

WIDTH, HEIGHT = 1120, 528
TOP = 92
SCREEN = (320, 420)
BARS_X, BARS_WIDTH = 388, 290
MEMORY_X, TILE = 728, 168
MAX_ACTIONS = 20


@dataclass(frozen=True)
class Moment:
    """One moment of an episode."""

    screen: Picture
    observation: NDArray[np.generic]
    q: NDArray[np.float32] | None
    action: int
    is_greedy: bool
    """Whether the action is the one of the highest Q-value."""
    score: float
    step: int
    episode: int


class Scene:
    """Draws moments of a run, one after the other."""

    def __init__(self, title: str, subtitle: str, actions: tuple[str, ...], search: MemorySearch | None, why_no_memory: str):
        self._title, self._subtitle = title, subtitle
        self._actions = actions
        self._search, self._why_no_memory = search, why_no_memory
        self._low, self._high = np.inf, -np.inf
        self._names_width = min(126.0, max(text_width(name, 14) for name in actions) + 40)

    def draw(self, moment: Moment) -> NDArray[np.uint8]:
        """The picture of a moment: (rows, columns, 3)."""
        canvas = Canvas(WIDTH, HEIGHT)
        self._draw_head(canvas, moment)
        canvas.picture(32, TOP, moment.screen, width=SCREEN[0], height=SCREEN[1])
        self._draw_actions(canvas, moment)
        self._draw_memory(canvas, moment)
        return canvas.pixels

    def _draw_head(self, canvas: Canvas, moment: Moment) -> None:
        canvas.text(32, 40, self._title, size=24, width=760)
        about = f"{self._subtitle} · episode {moment.episode} · decision {moment.step:,}"
        canvas.text(32, 66, about, size=14, colour=MUTED, width=880)
        canvas.text(WIDTH - 32, 48, number(moment.score), size=34, anchor="rs")
        canvas.text(WIDTH - 32, 66, "score", size=14, colour=MUTED, anchor="rs")

    def _draw_actions(self, canvas: Canvas, moment: Moment) -> None:
        canvas.text(BARS_X, TOP + 14, "Actions" if moment.q is None else "Q-values", size=16)
        canvas.text(BARS_X + BARS_WIDTH, TOP + 14, self._about_bars(moment), size=13, colour=MUTED, anchor="rs")
        q = np.zeros(len(self._actions), np.float32) if moment.q is None else moment.q
        shown = _shown_actions(q, moment.action)
        height = min(32.0, (SCREEN[1] - 34) / len(shown))
        for place, action in enumerate(shown):
            is_chosen = action == moment.action
            value = float(is_chosen) if moment.q is None else self._share(float(q[action]))
            figure = "" if moment.q is None else f"{float(q[action]):,.{self._digits()}f}"
            y, name = TOP + 32 + place * height, self._actions[action]
            self._draw_action(canvas, y, height, name, value, figure, is_chosen=is_chosen)

    def _about_bars(self, moment: Moment) -> str:
        if (q := moment.q) is None:
            return "this agent has no Q-values"
        self._low, self._high = min(self._low, float(q.min())), max(self._high, float(q.max()))
        mark = "" if moment.is_greedy else "not greedy; "
        return f"{mark}bars from {self._low:,.{self._digits()}f} to {self._high:,.{self._digits()}f}"

    def _share(self, q: float) -> float:
        return (q - self._low) / max(self._high - self._low, 1e-9)

    def _digits(self) -> int:
        """As many decimals as tell the Q-values apart."""
        return int(np.clip(2 - np.floor(np.log10(max(self._high - self._low, 1e-9))), 0, 4))

    def _draw_action(
        self, canvas: Canvas, y: float, height: float, name: str, share: float, figure: str, *, is_chosen: bool
    ) -> None:
        size, base = (14 if height > 20 else 12), y + height / 2 + 5
        left, room = BARS_X + self._names_width + 12, BARS_WIDTH - self._names_width - 12 - 64
        canvas.text(BARS_X, base, name, size=size, colour=ORANGE if is_chosen else INK, width=self._names_width)
        canvas.box(left, y + 3, room, height - 6, radius=2)
        canvas.box(left, y + 3, max(2.0, room * share), height - 6, colour=ORANGE if is_chosen else BLUE, radius=2)
        canvas.text(BARS_X + BARS_WIDTH, base, figure, size=size, colour=MUTED, anchor="rs")

    def _draw_memory(self, canvas: Canvas, moment: Moment) -> None:
        canvas.line([(MEMORY_X - 25, TOP), (MEMORY_X - 25, HEIGHT - 16)], colour=LINE)
        canvas.text(MEMORY_X, TOP + 14, "Most similar memory", size=16)
        if self._search is None:
            for row, line in enumerate(_wrapped(self._why_no_memory, 50)):
                canvas.text(MEMORY_X, TOP + 48 + 22 * row, line, size=14, colour=MUTED)
            return
        memory, match = self._search.memory, self._search.find(moment.observation, moment.action)
        canvas.text(WIDTH - 32, TOP + 14, f"at step {memory.step:,}", size=13, colour=MUTED, anchor="rs")
        before, after = (picture_of(frame, largest=memory.largest) for frame in memory.pictures(match.number))
        right = MEMORY_X + TILE + 24
        canvas.picture(MEMORY_X, TOP + 34, before, width=TILE, height=TILE)
        canvas.arrow(MEMORY_X + TILE + 4, TOP + 34 + TILE / 2)
        canvas.picture(right, TOP + 34, after, width=TILE, height=TILE)
        for x, name in ((MEMORY_X, "s"), (right, "s'")):
            canvas.text(x + TILE / 2, TOP + 34 + TILE + 20, name, size=14, colour=MUTED, anchor="ms")
        t, y = memory.remembered.transitions, TOP + 34 + TILE + 54
        is_same = int(t.a[match.number]) == moment.action
        rows = [
            ("action", self._actions[int(t.a[match.number])] + (", as now" if is_same else "")),
            ("reward", number(float(t.r[match.number])) + ("" if t.continues[match.number] else ", then the game was over")),
            ("visits", _visits(memory.remembered.visits, match.number)),
            ("Q-value", _latest_q(memory.remembered.q, match.number)),
            ("distance of s", "0, the same frame" if match.distance == 0 else number(match.distance)),
        ]
        for row, (name, value) in enumerate(rows):
            canvas.text(MEMORY_X, y + 25 * row, name, size=15, colour=MUTED)
            canvas.text(MEMORY_X + 116, y + 25 * row, value, size=15, width=244)


def _shown_actions(q: NDArray[np.float32], action: int) -> list[int]:
    """All actions, or, of very many, those of the highest Q-values and the chosen one, in their order."""
    best = np.argsort(-q, kind="stable")[:MAX_ACTIONS].tolist()
    return sorted(best if action in best else [*best[:-1], action])


def _visits(visits: NDArray[np.int64] | None, row: int) -> str:
    return "not counted by a replay memory" if visits is None else f"{int(visits[row]):,}"


def _latest_q(q: NDArray[np.float32] | None, row: int) -> str:
    return "not kept by a replay memory" if q is None else number(float(q[row, -1]))


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
