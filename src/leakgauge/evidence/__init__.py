"""What auditors and builds need of a finished run: cards, controls, checks."""
