"""Words that users type for what is trained, who attacks, and what is told apart."""

GLOBAL, LOCAL = "global", "local"
PASSIVE, ASCENT, ISOLATE, BOTH = "passive", "ascent", "isolate", "both"
STRATEGIES = (PASSIVE, ASCENT, ISOLATE, BOTH)

ALL, FIRST, SECOND, PARTS = "members", "first", "second", "parts"
APART = (ALL, FIRST, SECOND, PARTS)
"""Of a fine-tuned model: all members from others, those before it from others, those of it from
others, and those before it from those of it."""
