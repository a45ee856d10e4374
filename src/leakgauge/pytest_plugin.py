"""The pytest plugin: the fixture ``leakgauge``, and the option that runs the tests that use it.

pytest loads this module wherever leakgauge is installed, so it imports nothing before a test asks.
"""

from types import ModuleType

import pytest

OPTION = "--leakgauge"
MARKER = "leakgauge"
REASON = f"it audits training, which takes time; run it with {OPTION}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs audits."""
    group = parser.getgroup("leakgauge", "what the gradients of training give away")
    group.addoption(
        OPTION,
        action="store_true",
        default=False,
        help="run the tests that audit training with the fixture or the marker 'leakgauge', which "
        "are skipped otherwise",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, so that strict markers know it."""
    config.addinivalue_line("markers", f"{MARKER}: audits training; runs with {OPTION} alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test with the marker unless the option is given."""
    if item.get_closest_marker(MARKER) is not None:
        _skip_unless_asked(item.config)


@pytest.fixture(scope="session")
def leakgauge(request: pytest.FixtureRequest) -> ModuleType:
    """The package leakgauge, so that the name means the same with and without an import.

    ``leakgauge.audit(...)`` returns a result, whose ``require("advantage.high <= 0.1")`` and
    ``require_no_worse_than("base")`` fail the test. A test is skipped unless pytest runs with
    ``--leakgauge``. The scope is the session, so that a fixture of any scope can share an audit.
    """
    _skip_unless_asked(request.config)
    import leakgauge as package

    return package


def _skip_unless_asked(config: pytest.Config) -> None:
    if not config.getoption(OPTION):
        pytest.skip(REASON)
