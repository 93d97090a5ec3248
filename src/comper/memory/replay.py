"""Moved to `comper.memory.transitions`; this module goes away once nobody imports it (the lead deletes it)."""

from comper.memory.transitions import ReplayMemory as ReplayMemory
