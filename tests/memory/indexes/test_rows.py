"""Rows of the l2 index: appended, killed, and compacted without a change to what lives."""

from __future__ import annotations

import numpy as np

from comper.memory.indexes.exact import NO_MATCH
from comper.memory.indexes.rows import Point, RowTable


def point(number: int) -> Point:
    sketch = np.array([number, -number], np.float32)
    return Point((number, number + 1), (float(number % 3), number / 2), float(number**2), sketch, float(10 - number))


def filled(count: int, capacity: int) -> RowTable:
    table = RowTable(capacity, num_frames=2, num_columns=2)
    for number in range(count):
        row = table.append(100 + number, point(number))
        if number % 2:
            table.mark_posted(row)
    return table


def content(table: RowTable, set_id: int) -> tuple[object, ...]:
    row = table.row_of[set_id]
    columns = (table.ids[row].tolist(), table.scalars[row].tolist(), table.sketches[:, row].tolist())
    return (int(table.set_ids[row]), *columns, float(table.sq_norms[row]), bool(table.is_posted[row]))


def test_a_row_holds_the_point_that_was_appended() -> None:
    table = filled(4, 5)
    assert content(table, 103) == (103, [3, 4], [0.0, 1.5], [3.0, -3.0], 9.0, True)
    assert (table.end, table.is_full, table.num_posted) == (4, False, 2)
    assert table.reach == 10  # of point 0, the longest
    table.append(9, point(9))
    assert table.is_full


def test_a_dead_row_is_infinitely_far_and_no_longer_posted() -> None:
    table = filled(4, 5)
    table.kill(101)
    assert 101 not in table.row_of
    assert (table.set_ids[1], table.sketches[0, 1], table.is_posted[1]) == (NO_MATCH, np.inf, False)
    table.kill(102)  # was not posted
    assert table.num_posted == 1


def test_a_compacted_table_holds_the_living_rows_in_their_order_and_room_for_more() -> None:
    table = filled(6, 6)
    for set_id in (100, 103):
        table.kill(set_id)
    before = {set_id: content(table, set_id) for set_id in table.row_of}
    smaller, new_rows = table.compacted()
    assert new_rows.tolist() == [-1, 0, 1, -1, 2, 3]
    assert {set_id: content(smaller, set_id) for set_id in smaller.row_of} == before
    assert list(smaller.row_of) == [101, 102, 104, 105]
    assert (smaller.end, smaller.num_posted, smaller.reach) == (4, 2, 10)
    assert not smaller.is_full
    assert len(smaller.set_ids) == 1024
    assert smaller.set_ids[4:].tolist() == [NO_MATCH] * 1020


def test_a_large_table_gets_room_for_as_many_again() -> None:
    assert len(filled(700, 700).compacted()[0].set_ids) == 1_400
    assert filled(0, 2_000).nbytes == 2 * filled(0, 1_000).nbytes > 0
