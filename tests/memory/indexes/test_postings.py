"""Lists of changed pixels: products with all rows at once."""

from __future__ import annotations

import numpy as np

from comper.memory.indexes.postings import MAX_PIXELS, Postings


def test_postings_give_the_products_with_all_rows_also_after_rows_were_dropped() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-255, 256, (10, 2, 6)) * (rng.random((10, 2, 6)) < 0.4)
    differences = [[(np.flatnonzero(frame), frame[frame != 0]) for frame in vector] for vector in vectors]
    postings = Postings(6)
    assert all(postings.add(row, differences[row]) for row in range(10))
    for living in (np.arange(10), np.array([7, 1, 4])):
        new_rows = np.full(10, -1, np.int64)
        new_rows[living] = np.arange(len(living))
        postings.renumber(new_rows)
        for query in range(10):
            dots = postings.dots(differences[query], len(living), most_work=1000)
            np.testing.assert_array_equal(dots, (vectors[living] * vectors[query]).sum(axis=(1, 2)))
    assert postings.dots(differences[0], 3, most_work=0) is None
    too_many = np.ones(MAX_PIXELS + 1, np.int64)
    assert not Postings(1000).add(0, [(np.flatnonzero(too_many), too_many)])
