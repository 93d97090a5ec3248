"""The scores of others are whole."""

from __future__ import annotations

import numpy as np

from comper.protocol import PAPER_GAMES
from comper.report.published import reference


def test_printed_tables_are_whole() -> None:
    for game in PAPER_GAMES:
        for column in reference.PRINTED_COLUMNS:
            cell, cells = reference.table_1(game, column), reference.table_2(game, column)
            assert cell is not None
            assert cells is not None
            assert np.isfinite([cell.mean, cell.sd]).all()
            assert len(cells) == 3
        for column in reference.sources():
            assert np.isfinite(reference.score(game, column))
