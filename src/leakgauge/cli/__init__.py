"""The command line: parses, calls, prints."""

from leakgauge.cli.app import main

__all__ = ["main"]
