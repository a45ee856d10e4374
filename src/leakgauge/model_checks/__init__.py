"""Checks of a model that a client receives, before it trains on private records."""
