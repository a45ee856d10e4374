"""Check that help, versions and light imports do not load heavy modules."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "matplotlib", "jinja2", "sklearn", "scipy", "pandas")


def loaded(code: str, *names: str) -> list[str]:
    """Return the ``names`` that a new process has loaded after ``code``."""
    tail = f"import sys; sys.stderr.write(' '.join(n for n in {names!r} if n in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{tail}"], capture_output=True, text=True, check=True
    )
    return done.stderr.split()


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(word: str) -> None:
    code = (
        f"import sys; sys.argv = ['leakgauge', {word!r}]\n"
        "from leakgauge.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code"
    )
    assert loaded(code, *HEAVY) == []


def test_every_commands_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from leakgauge.cli import main\n"
        "for word in ('audit', 'compare', 'demo', 'run', 'guarantee', 'invert', 'report'):\n"
        "    sys.argv = ['leakgauge', word, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code"
    )
    assert loaded(code, *HEAVY) == []


def test_the_package_loads_nothing_heavy() -> None:
    assert loaded("import leakgauge", *HEAVY) == []
    assert loaded("import leakgauge.core", *HEAVY) == []
    assert loaded("import leakgauge.pytest_plugin", *HEAVY) == []


def test_the_interface_and_a_refused_audit_load_no_learner_and_no_statistics() -> None:
    """And every public name can be had. One process does all, since each would load torch."""
    code = (
        "import sys, leakgauge as lg; lg.load\n"
        "def among(*names): return {*names} & set(sys.modules)\n"
        "assert not among('matplotlib', 'jinja2', 'sklearn')\n"
        "from leakgauge.cli import main\n"
        "sys.argv = ['leakgauge', 'audit', 'randhie', '--batches', 'neither']\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 2\n"
        "assert among('leakgauge.evidence.controls'), 'the command was loaded'\n"
        "assert not among('matplotlib', 'sklearn', 'scipy.stats')\n"
        "for name in lg.__all__: getattr(lg, name)\n"
        "assert len(lg.__all__) < 30"
    )
    assert loaded(code, "nothing") == []
