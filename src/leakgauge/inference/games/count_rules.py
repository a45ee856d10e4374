"""How proportion inference turns a share into a count of records."""

FLOOR, WITHIN = "floor", "within"

COUNT_RULES = (FLOOR, WITHIN)
"""The rules of ``games.mixing.Ratio``: as the paper prints it, and ours."""
