"""The command line: parses, calls, prints."""

from leakgauge.cli.entry import main

__all__ = ["main"]
