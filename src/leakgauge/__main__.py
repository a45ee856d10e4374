"""``python -m leakgauge``."""

from leakgauge.cli import main

main()
