"""Moved to `comper.memory.frames`; this module goes away once nobody imports it (the lead deletes it)."""

from comper.memory.frames import ObservationHistory as ObservationHistory
