"""Compact experience replay with NumPy alone: no torch, no emulator.

Start with `CompactMemory`. The other classes are the parts that the paper's agents are made of:

    FrameStore              every frame once, by content; ObservationHistory makes states of its frame ids
    make_index              the Transition Memory Index TMI: finds the set that a transition belongs to
    TransitionMemory        TM; ReducedTransitionMemory, RTM; both for T trials at once: TransitionMemories, ...
    ReplayMemory            the replay memory of DQN; for T trials, with returns over n steps: ReplayMemories
    TransitionGraph         sets of similar transitions as edges between states, over which values travel
"""

from comper.memory.compact import CompactMemory, SampledTransitions
from comper.memory.compressed import make_frame_store
from comper.memory.frame_archive import FrameArchive
from comper.memory.frames import FrameStore, ObservationHistory
from comper.memory.graph import TransitionGraph, TransitionGraphs
from comper.memory.indexes import NO_MATCH, SimilarityIndex, TransitionKey, make_index
from comper.memory.propagation import ValueRule
from comper.memory.transition_memory import (
    ReducedTransitionMemories,
    ReducedTransitionMemory,
    Sets,
    TransitionMemories,
    TransitionMemory,
)
from comper.memory.transitions import Batch, ReplayMemories, ReplayMemory, Transition, TransitionBatch

__all__ = [
    "NO_MATCH",
    "Batch",
    "CompactMemory",
    "FrameArchive",
    "FrameStore",
    "ObservationHistory",
    "ReducedTransitionMemories",
    "ReducedTransitionMemory",
    "ReplayMemories",
    "ReplayMemory",
    "SampledTransitions",
    "Sets",
    "SimilarityIndex",
    "Transition",
    "TransitionBatch",
    "TransitionGraph",
    "TransitionGraphs",
    "TransitionKey",
    "TransitionMemories",
    "TransitionMemory",
    "ValueRule",
    "make_frame_store",
    "make_index",
]
