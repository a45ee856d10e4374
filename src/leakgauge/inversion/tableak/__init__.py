"""Rebuilds rows of a table by a pooled ensemble of searches, with a confidence for each cell."""
