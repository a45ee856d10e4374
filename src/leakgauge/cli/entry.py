"""The program: what a shell starts. It imports nothing before it can be stopped."""

import atexit
import gc
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
STOPS = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""Signals that stop a command like Ctrl-C: of a shell or a server, and of a closed terminal."""


def main() -> None:
    """Run a command; Ctrl-C and ``STOPS`` stop it in order, also while modules are imported."""
    stopped = signal.SIGINT
    atexit.register(gc.freeze)  # Python would go over each object once more before it ends: 1 s

    def leave(number: int, frame: FrameType | None) -> None:
        # Python drops an exception that is raised in the callbacks by which it imports modules.
        os._exit(128 + number)

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = signal.Signals(number)
        raise KeyboardInterrupt

    heard = {
        one: signal.signal(one, leave)
        for one in (signal.SIGINT, *STOPS)
        if signal.getsignal(one) is not signal.SIG_IGN  # as nohup sets it
    }
    try:
        from leakgauge.cli.app import main as run

        for one, by in heard.items():
            signal.signal(one, by if one is signal.SIGINT else stop)
        run()
    except KeyboardInterrupt:
        sys.exit(128 + stopped)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            sys.exit(128 + stopped)
        raise
