"""Adapters to trainers of other libraries: they say when to look, and compute nothing."""
