"""What an adversary knows of a defense."""

STATIC, ADAPTIVE = "static", "adaptive"
"""A static adversary learns from undefended gradients; an adaptive one knows the defense."""
