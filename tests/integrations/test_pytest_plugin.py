"""The plugin of pytest, loaded by its entry point as in a user's project."""

from pathlib import Path

import pytest

import leakgauge as lg
from support.gated_audit import write_people

pytest_plugins = ["pytester"]
SOURCE = Path(lg.__file__).parents[1]
INSTALLED = {
    "METADATA": "Metadata-Version: 2.1\nName: leakgauge-plugin\nVersion: 0\n",
    "entry_points.txt": "[pytest11]\nleakgauge = leakgauge.pytest_plugin\n",
}
HEAVY = "torch", "numpy", "pandas", "leakgauge.api"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a user's project, in which an installed package declares the entry point."""
    site = pytester.mkdir("site")
    (site / "leakgauge_plugin-0.dist-info").mkdir()
    for name, text in INSTALLED.items():
        (site / "leakgauge_plugin-0.dist-info" / name).write_text(text, "utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{site}:{SOURCE}")
    return pytester


def test_audits_are_skipped_with_a_reason_unless_asked_for(project: pytest.Pytester) -> None:
    """Nothing heavy is loaded in a run without the option, and no other test is touched."""
    project.makepyfile(
        f"""
        import sys

        import leakgauge
        import pytest

        def test_of_something_else():
            assert not {set(HEAVY)!r} & set(sys.modules)

        def test_by_fixture(leakgauge):
            assert leakgauge.InputError

        @pytest.fixture(scope="module")
        def shared(leakgauge):
            return leakgauge

        def test_by_another_fixture(shared):
            assert shared is leakgauge

        @pytest.mark.leakgauge
        def test_by_marker():
            pass
        """
    )
    ended = project.runpytest_subprocess("-ra", "--strict-markers", "-W", "error")
    ended.assert_outcomes(passed=1, skipped=3)
    ended.stdout.fnmatch_lines(["*it audits training, which takes time; run it with --leakgauge*"])
    project.runpytest_subprocess("--leakgauge", "-W", "error").assert_outcomes(passed=4)


def test_a_fixture_of_the_project_with_this_name_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.fixture
        def leakgauge():
            return "mine"

        def test_mine(leakgauge):
            assert leakgauge == "mine"
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)


AUDITS = """
import pandas
import pytest

SMALL = dict(rounds=1, trials=200, batch_size=4, shadow=200, adversaries="energies")

def audited(leakgauge, columns, out=None, seed=0):
    table = pandas.read_csv("people.csv").drop(columns=[*columns, "coin"])
    data = leakgauge.load(table, label="income", secret="smokes")
    return leakgauge.audit(data, "property", out=out, seed=seed, **SMALL)

@pytest.fixture(scope="session")
def clean(leakgauge):
    return audited(leakgauge, ["copy"], out="base")

@pytest.fixture(scope="session")
def leaky(leakgauge):
    return audited(leakgauge, [])

def test_private(clean):
    clean.require("advantage.high <= 0.6", "property.auroc.low <= 0.7")

def test_no_worse(leakgauge, clean):
    audited(leakgauge, ["copy"], seed=1).require_no_worse_than("base")

def test_leaks(leaky):
    leaky.require("advantage.high <= 0.6")

def test_worse(clean, leaky):
    leaky.require_no_worse_than(clean, "advantage", by=0.02)

def test_mistyped(clean):
    clean.require("advantge <= 0.6")
"""


@pytest.mark.slow
@pytest.mark.calibration
def test_audits_fail_a_test_where_a_leak_is_planted(project: pytest.Pytester) -> None:
    """A feature that copies the secret is the leak; without it both tests pass."""
    write_people(project.path)
    project.makepyfile(AUDITS)
    ended = project.runpytest_subprocess("--leakgauge", "-W", "error")
    ended.assert_outcomes(passed=2, failed=3)
    ended.stdout.fnmatch_lines(
        [
            "E*AssertionError: property of smokes, no defense: advantage is * (95 % interval * to "
            "*). The rule 'advantage.high <= 0.6' fails: the upper end * is above 0.6.",
            "E*AssertionError: *the difference of advantage is +*(95 % interval +* to +*). The "
            "rule 'advantage.difference.low <= 0.02' fails: the lower end * is above 0.02.",
            "E*InputError: require is 'advantge <= 0.6': no metric 'advantge'; did you mean *",
        ]
    )
    assert "result.py" not in ended.stdout.str().split("test_mistyped")[0]  # its frames are hidden
