"""Pictures and films of what a run has learned and of what it remembers."""
