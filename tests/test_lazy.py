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


def test_the_interface_loads_no_page_and_no_learner_and_every_public_name_can_be_had() -> None:
    code = (
        "import sys, leakgauge as lg; lg.load\n"
        "assert not {'matplotlib', 'jinja2', 'sklearn'} & set(sys.modules)\n"
        "for name in lg.__all__: getattr(lg, name)\n"
        "assert len(lg.__all__) < 30"
    )
    assert loaded(code, "nothing") == []


@pytest.mark.slow
def test_an_audit_that_is_refused_loads_no_chart_no_learner_and_no_statistics() -> None:
    code = (
        "import sys; from leakgauge.cli import main\n"
        "sys.argv = ['leakgauge', 'audit', 'randhie', '--batches', 'neither']\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 2"
    )
    *said, last = loaded(
        code, "matplotlib", "sklearn", "scipy.stats", "leakgauge.evidence.controls"
    )
    assert last == "leakgauge.evidence.controls"
    assert not {"matplotlib", "sklearn", "scipy.stats"} & set(said)
