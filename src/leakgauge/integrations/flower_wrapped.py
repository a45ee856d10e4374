"""A strategy of Flower around another one."""

from collections.abc import Iterable

from leakgauge.core.checks import require
from leakgauge.core.extras import not_installed

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise not_installed("flwr", "flower") from error


class WrappedStrategy(Strategy):
    """Delegates everything to another strategy; subclasses watch what they need.

    Args:
        strategy: to wrap.
        advice: what to do with a strategy that cannot be wrapped, as the end of a sentence.

    Raises:
        InputError: the strategy is one of ``flwr.server.strategy`` or has its own method ``start``.
    """

    def __init__(self, strategy: Strategy, advice: str) -> None:
        require(
            isinstance(strategy, Strategy),
            f"{type(strategy).__name__} is not a strategy of flwr.serverapp.strategy, and the "
            f"wrapper sees no messages of others; {advice}",
        )
        require(
            type(strategy).start is Strategy.start,
            f"{type(strategy).__name__} has its own method start, whose rounds a wrapper cannot "
            f"see; {advice}",
        )
        super().__init__()
        self.strategy = strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Delegate to the wrapped strategy."""
        found: Iterable[Message] = self.strategy.configure_train(server_round, arrays, config, grid)
        return found

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Delegate to the wrapped strategy."""
        found: tuple[ArrayRecord | None, MetricRecord | None] = self.strategy.aggregate_train(
            server_round, replies
        )
        return found

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Delegate to the wrapped strategy."""
        found: Iterable[Message] = self.strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return found

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Delegate to the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the summary of the wrapped strategy."""
        self.strategy.summary()
