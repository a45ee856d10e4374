"""Words of the settings that the games know too; it imports nothing."""

FLOOR, WITHIN = "floor", "within"
COUNT_RULES = (FLOOR, WITHIN)
"""How proportion inference turns a share into a count of records: ``games.mixing.Ratio``."""
