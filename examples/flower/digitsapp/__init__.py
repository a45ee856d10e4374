"""A Flower app: three clients learn to read digits."""
