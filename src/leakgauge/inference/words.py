"""Words of the settings that the games also use; the module has no imports."""

REUSE, FRESH = "reuse", "fresh"
BLOCKS, IID = "blocks", "iid"
UNIFORM, EMPIRICAL = "uniform", "empirical"

FLOOR, WITHIN = "floor", "within"
COUNT_RULES = (FLOOR, WITHIN)
"""How proportion inference turns a share into a count of records: ``games.mixing.Ratio``."""

EACH = 10
"""Largest number of first rounds up to which every sum has figures; then 20, 50, 100, 200, ..."""

_STEPS = (1, 2, 5)


def summed(rounds: int) -> list[int]:
    """Return the numbers of first rounds with figures of their sum, besides that of all rounds.

    Their count grows with the logarithm of the rounds, so that a long run stores few figures.

    >>> summed(5), summed(1000)[8:]
    ([2, 3, 4], [10, 20, 50, 100, 200, 500])
    """
    numbers = list(range(2, min(rounds, EACH + 1)))
    size = EACH
    while size < rounds:
        numbers += [step * size for step in _STEPS if EACH < step * size < rounds]
        size *= 10
    return numbers
