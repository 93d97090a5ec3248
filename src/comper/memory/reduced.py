"""Moved to `comper.memory.transition_memory`; this module goes away once nobody imports it (the lead deletes it)."""

from comper.memory.transition_memory import ReducedTransitionMemory as ReducedTransitionMemory
