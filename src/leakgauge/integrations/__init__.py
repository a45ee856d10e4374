"""Adapters to trainers of other libraries: they say when to observe, and compute nothing."""
