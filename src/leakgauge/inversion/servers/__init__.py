"""Servers that alter the model which they send, so that updates give records away."""
