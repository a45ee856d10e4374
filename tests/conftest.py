"""What several test files share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from leakgauge.core.threads import one_thread
from leakgauge.data.named import DATA_VARIABLE
from leakgauge.data.named import data_folder as named_folder


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """As in an audit; small problems on several threads mostly wait for each other."""
    with one_thread():
        yield


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data; where it is named, a file that is missing from it is a failure."""
    folder = named_folder()
    if folder is None:
        pytest.skip(f"{DATA_VARIABLE} is not set: no real data")
    assert folder.is_dir(), f"{DATA_VARIABLE} names {str(folder)!r}, which is no folder"
    return folder
