"""Settings of the whole suite."""

import os
import signal

# Threads that wait should sleep: spinning ones starve each other when tests run side by side. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Who starts the suite in the background may have these ignored, and every child inherits that; tests of signals need them.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)
for _name in ("SIGHUP", "SIGUSR1"):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), signal.SIG_DFL)
