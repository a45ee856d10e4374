"""One process for the estimates of many tests: starting one takes seconds."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor

from leakgauge.tokens.monitor import background


class Lasting:
    """An executor that outlives the monitors that end it."""

    def __init__(self) -> None:
        self.own = ProcessPoolExecutor(
            max_workers=1, initializer=background._begin, env=background._ALONE
        )

    def submit(self, *given: Any) -> Future[Any]:
        return self.own.submit(*given)

    def shutdown(self, **given: Any) -> None:
        return


@pytest.fixture(scope="session")
def lasting() -> Iterator[Lasting]:
    made = Lasting()
    yield made
    made.own.shutdown(kill_workers=True)


@pytest.fixture
def one_process(lasting: Lasting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let monitors use the process of earlier tests."""
    monkeypatch.setattr(background, "ProcessPoolExecutor", lambda **given: lasting)
