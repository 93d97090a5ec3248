"""Similarity indexes: the paper's Transition Memory Index (TMI), Section 4.2, in four kinds, and one of this project's own.

`exact` for δ = 0 and `l2` for δ > 0, neither of them approximate; `faiss`, the one the paper used; `none`, which finds
nothing. `CoarseIndex` compares shrunk pictures.
"""

from __future__ import annotations

from comper.memory.frames import FrameStore
from comper.memory.indexes.coarse import CoarseIndex
from comper.memory.indexes.exact import NO_MATCH, ExactIndex, NoIndex, SimilarityIndex, TransitionKey, held_by
from comper.memory.indexes.faiss_index import FaissIndex
from comper.memory.indexes.l2 import L2Index

__all__ = [
    "NO_MATCH", "CoarseIndex", "ExactIndex", "FaissIndex", "L2Index", "NoIndex", "SimilarityIndex", "TransitionKey",
    "held_by", "make_index",
]  # fmt: skip


def make_index(kind: str, frames: FrameStore, threshold: float) -> SimilarityIndex:
    """Make an index of this kind (exact, l2, faiss or none) over the store's frames, with δ = threshold."""
    if kind in ("exact", "none"):
        if threshold != 0:
            raise ValueError(f"threshold = {threshold}: must be 0 with kind = {kind!r}; use 'l2' or 'faiss'.")
        return ExactIndex(frames) if kind == "exact" else NoIndex()
    if kind == "l2":
        return L2Index(frames, threshold)
    if kind == "faiss":
        return FaissIndex(frames, threshold)
    raise ValueError(f"kind = {kind!r}: must be one of exact, l2, faiss, none.")
