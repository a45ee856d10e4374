"""A package that is not installed is named in one line, with the command that installs it."""

import importlib
import sys

import pytest

from leakgauge.core.checks import InputError


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("flower", "flwr", "flower"),
        ("nvflare", "nvflare", "nvflare"),
        ("lightning", "lightning", "lightning"),
        ("hugging_face", "transformers", "hf"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"leakgauge.integrations.{module}", raising=False)
    with pytest.raises(InputError) as said:
        importlib.import_module(f"leakgauge.integrations.{module}")
    command = f"pip install 'leakgauge[{extra}]'"
    assert str(said.value) == f"{package} is not installed; install it with: {command}"
