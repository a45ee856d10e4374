"""What an adversary knows of a defense."""

STATIC, ADAPTIVE = "static", "adaptive"
"""It knows nothing of the defense; it knows the defense and trains against it."""
