"""Check that the wheel holds exactly the package. ``make wheel-check`` installs and runs it."""

import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import leakgauge

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "leakgauge"
TABLES = {"leakgauge/data/tables/randhie.parquet"}
"""Data that the wheel may hold: the public-domain table."""

CODE = {".py", ".j2", ".css", ".js", ".typed", ".json", ".yaml", ".md", ".txt"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel, built by the build backend without network."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return zipfile.ZipFile(next(out.glob("*.whl")))


def metadata(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith("dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_it_holds_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile) -> None:
    source = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == source
    assert "leakgauge/py.typed" in held
    assert sum(name.endswith(".j2") for name in held) > 10


def test_it_holds_no_data_but_the_table_of_public_domain(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name for name in held if Path(name).suffix not in CODE} == TABLES
    assert not any(Path(name).parts[1].startswith("test") for name in held if "/" in name)


def test_its_metadata_say_what_the_project_says(wheel: zipfile.ZipFile) -> None:
    found = metadata(wheel)
    assert found["Version"] == leakgauge.__version__
    assert found["License-Expression"] == "Apache-2.0"
    assert found["License-File"] == "LICENSE"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert set(found.get_all("Provides-Extra", [])) >= {"all", "dp", "hf", "lightning", "opacus"}


def test_it_declares_the_command_and_the_plugin_of_pytest(wheel: zipfile.ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("dist-info/entry_points.txt"))
    found = wheel.read(name).decode()
    assert "[console_scripts]\nleakgauge = leakgauge.cli:main" in found
    assert "[pytest11]\nleakgauge = leakgauge.pytest_plugin" in found


def test_the_extra_all_needs_what_every_extra_for_users_needs(wheel: zipfile.ZipFile) -> None:
    """The extras of developers and of the documentation are left out."""
    needed = [Requirement(one) for one in metadata(wheel).get_all("Requires-Dist", [])]
    extras = set(metadata(wheel).get_all("Provides-Extra", [])) - {"dev", "docs"}
    by_extra = {
        extra: {
            f"{one.name}{one.specifier}"
            for one in needed
            if one.marker is not None and one.marker.evaluate({"extra": extra})
        }
        for extra in extras
    }
    everything = by_extra.pop("all")
    assert everything == set().union(*by_extra.values())
    assert len(everything) >= 4


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert cited["version"] == leakgauge.__version__
    assert cited["license"] == "Apache-2.0"
    assert cited["authors"] == [{"name": "The leakgauge developers"}]
    assert {"message", "title"} <= set(cited)
