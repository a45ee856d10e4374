"""The program: what a shell starts. It imports nothing before it can be stopped."""

import signal
import sys
from types import FrameType

INTERRUPTED = 130
STOPS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""Signals that stop a command like Ctrl-C: of a shell or a server, and of a closed terminal."""


def main() -> None:
    """Run a command; Ctrl-C and ``STOPS`` stop it in order, also while modules are imported."""
    stopped = signal.SIGINT

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = signal.Signals(number)
        raise KeyboardInterrupt

    for one in STOPS:
        if signal.getsignal(one) is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(one, stop)
    try:
        from leakgauge.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + stopped)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            sys.exit(128 + stopped)
        raise
