"""Commands that read finished runs: an edit of each file in it ends them, or makes a new answer."""

from pathlib import Path

import pytest

from support import command
from support.bound_folders import READERS, Reader, edited, write_runs

pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("folders")
    write_runs(made)
    return made


def notices(folder: Path, one: Reader, path: Path) -> bool:
    """Return whether a command notices an edit of a file."""
    makes = one.makes.get(one.input_of(path, folder))
    with edited(path):
        ended = command.run(*one.words, cwd=folder)
        other = b"" if makes is None else (folder / makes).read_bytes()
    if makes is None:
        return ended.returncode in (2, 3) and path.name in ended.stderr
    assert [ended.returncode, command.run(*one.words, cwd=folder).returncode] == [0, 0]
    return other != (folder / makes).read_bytes()


@pytest.mark.parametrize("name", READERS)
def test_an_edit_of_each_file_is_noticed(name: str, folder: Path) -> None:
    one = READERS[name]
    assert command.run(*one.words, cwd=folder).returncode == 0
    files = one.files(folder)
    assert {one.input_of(path, folder) for path in files} == set(one.reads)
    unnoticed = [path for path in files if not notices(folder, one, path)]
    assert [path.relative_to(folder).as_posix() for path in unnoticed] == []
    assert command.run(*one.words, cwd=folder).returncode == 0
