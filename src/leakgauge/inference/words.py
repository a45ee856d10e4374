"""Words of the settings that the games also use; importing it loads nothing."""

REUSE, FRESH = "reuse", "fresh"
UNIFORM, EMPIRICAL = "uniform", "empirical"

FLOOR, WITHIN = "floor", "within"
COUNT_RULES = (FLOOR, WITHIN)
"""How proportion inference turns a share into a count of records: ``games.mixing.Ratio``."""

EACH = 10
"""Up to so many first rounds every sum has figures; of more, that of 20, 50, 100, 200, ..."""

_STEPS = (1, 2, 5)


def summed(rounds: int) -> list[int]:
    """Return the numbers of first rounds whose sum has figures, beside the sum of all rounds.

    A single round is its own sum. The numbers grow as the logarithm of the rounds do, so that a
    long run does not store a figure of each.

    >>> summed(5), summed(1000)[8:]
    ([2, 3, 4], [10, 20, 50, 100, 200, 500])
    """
    numbers = list(range(2, min(rounds, EACH + 1)))
    size = EACH
    while size < rounds:
        numbers += [step * size for step in _STEPS if EACH < step * size < rounds]
        size *= 10
    return numbers
