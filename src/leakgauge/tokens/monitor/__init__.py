"""A monitor that measures the leakage of a training loop while it runs."""
