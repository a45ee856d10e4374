"""What an adversary knows about a defense."""

STATIC, ADAPTIVE = "static", "adaptive"
"""A static adversary does not know the defense; an adaptive one trains against it."""
