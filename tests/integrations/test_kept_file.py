"""The YAML file of a kept update, with fields of other types than a keeper writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.core.files import read_yaml, write_yaml
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_file import KeptBase
from leakgauge.integrations.kept_reading import KeptRounds, read_kept
from leakgauge.integrations.training_settings import LocalTraining

ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
PLACES = (
    "round", "client", "source", "seen", "kind", "model", "update", "examples", "metrics",
    "config", "training", "training.lr", "training.epochs", "training.momentum", "model.sha256",
    "model.file", "update.bytes", "metrics.loss", "base", "base.sha256", "more",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept")
    tensors = {"weight": torch.ones(2)}
    training = LocalTraining(lr=0.1, epochs=1)
    base = KeptBase(sha256="0" * 64, tensors=1)
    sent = Exchange(1, "0", tensors, tensors, examples=3, metrics={"loss": 1.5}, base=base)
    Keeper(path, training=training).keep(sent)
    return path


def changed(folder: Path, place: str, value: Any) -> Callable[[], KeptRounds]:
    """Return a reader of the folder with one value changed, which puts the old file back."""

    def read() -> KeptRounds:
        about = folder / "rounds" / "0001" / "0.yaml"
        content, kept = about.read_bytes(), read_yaml(about)
        *outer, last = place.split(".")
        at = kept[outer[0]] if outer else kept
        at[last] = value
        write_yaml(about, kept)
        try:
            return read_kept(folder)
        finally:
            about.write_bytes(content)

    return read


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PLACES), ANY)
def test_a_changed_field_is_read_as_its_type_or_refused_by_name(
    folder: Path, place: str, value: Any
) -> None:
    try:
        (one,) = changed(folder, place, value)().updates
    except InputError as error:
        said = str(error)
        assert "\n" not in said
        assert any(word in said.replace("_", " ") for word in (place, place.split(".")[-1], "rate"))
        return
    assert type(one.number) is int
    assert one.number > 0
    assert type(one.client) is str
    assert (one.kind in ("weights", "change"), one.seen in ("client", "server")) == (True, True)
    assert one.examples is None or (type(one.examples) is int and one.examples > 0)
    assert one.training.lr is None or one.training.lr > 0
    assert all(type(number) in (int, float) for number in one.metrics.values())


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("round", "1", r"round is '1'; input should be a valid integer"),
        ("round", True, r"round is 'True'"),
        ("client", 7, r"client is '7'; input should be a valid string"),
        ("training.lr", "fast", r"training\.lr.* is 'fast'"),
        ("training.lr", -1, r"learning rate is -1"),
        ("training.epochs", 1.5, r"epochs is 1\.5"),
        ("training.rate", 1, r"training\.rate is unknown; known: lr"),
        ("model.file", "../../secret", r"model\.file is '\.\./\.\./secret'"),
        ("examples", 0, r"examples is '0'; input should be greater than 0"),
        ("metrics", [1], r"metrics is '\[1\]'; input should be a valid dict"),
    ],
)
def test_a_wrong_field_is_named(folder: Path, place: str, value: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"0\.yaml': {says}[^\n]*; keep the round anew$"):
        changed(folder, place, value)()


def test_an_update_that_is_kept_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    here = tmp_path / "kept"
    for path in folder.rglob("0.*"):
        for name in (path.name, path.name.replace("0", "1", 1)):
            to = here / path.relative_to(folder).with_name(name)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())
    with pytest.raises(
        InputError,
        match=r"client 0 is kept twice, as '.*0\.safetensors' and '.*1\.safeten",
    ):
        read_kept(here)


def test_more_local_steps_than_a_client_can_do_are_refused(folder: Path, tmp_path: Path) -> None:
    """``examples`` of 7 * 10**12 asked for a list of as many rates."""
    (one,) = changed(folder, "examples", 7 * 10**12)().updates
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.ones(2))
    training = LocalTraining(lr=0.1, epochs=1, batch_size=5)
    with pytest.raises(InputError, match="1,400,000,000,000 local steps of a client; expected at"):
        one.update(model, training)
