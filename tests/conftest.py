"""Settings of the whole suite."""

import os

# Threads that wait should sleep: spinning ones starve each other when tests run side by side. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
