"""What an adversary knows of the defense: the two words that measurements use."""

STATIC, ADAPTIVE = "static", "adaptive"
