"""COMPER: Compact Experience Replay (arXiv 2111.06907)."""

__version__ = "0.1.0"
