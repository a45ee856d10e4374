"""The program: what a shell starts. It imports nothing before it can be stopped."""

import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143


def main() -> None:
    """Run a command; Ctrl-C and SIGTERM stop it in order, also while modules are imported."""
    terminated = False

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        from leakgauge.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(TERMINATED if terminated else INTERRUPTED)
    except SystemExit as ended:
        if terminated and ended.code == INTERRUPTED:
            sys.exit(TERMINATED)
        raise
