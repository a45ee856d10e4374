"""A monitor that watches a training loop while it runs: what leaks, at which step."""
