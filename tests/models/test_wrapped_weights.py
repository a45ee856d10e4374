"""Checkpoints as wrappers and training loops write them, against the plain weights."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from leakgauge.core.checks import InputError
from leakgauge.models import load_weights, read_state

State = dict[str, Tensor]


class Held(nn.Module):
    """Holds a network under a name, as a LightningModule does."""

    def __init__(self, name: str, held: nn.Module) -> None:
        super().__init__()
        self.add_module(name, held)


class Tied(nn.Module):
    """Shares one tensor between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.wte.weight


def inside(net: nn.Module) -> nn.Module:
    """Wrap a submodule, as those do who compile a part of a network."""
    first = next(name for name, part in net.named_children() if list(part.parameters()))
    setattr(net, first, torch.compile(getattr(net, first), backend="eager"))
    return net


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "DataParallel": nn.DataParallel,
    "compile": lambda net: torch.compile(net, backend="eager"),  # type: ignore[dict-item]
    "averaged": AveragedModel,
    "lightning": lambda net: Held("model", net),
    "module": lambda net: Held("net", net),
    "own": lambda net: Held("resnet", net),
}
NESTED = ((), ("state_dict",), ("model",), ("net",), ("callbacks", "average"))


def network(kind: int, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == 0:
            return nn.Linear(2, 2)
        if kind == 1:
            return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.Linear(3, 2)))
        if kind == 2:
            return Held("model", nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
        return Tied()


def equal(one: nn.Module, other: nn.Module) -> bool:
    theirs = other.state_dict()
    return all(torch.equal(leaf, theirs[name]) for name, leaf in one.state_dict().items())


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 3),
    st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=3, unique=True),
    st.sampled_from(NESTED),
    st.booleans(),
)
def test_a_file_of_a_wrapped_model_gives_the_plain_weights(
    tmp_path_factory: pytest.TempPathFactory,
    kind: int,
    words: list[str],
    keys: tuple[str, ...],
    part: bool,
) -> None:
    net = network(kind, seed=1)
    wrapped = inside(network(kind, seed=1)) if part and kind in (1, 2) else net
    for word in words:
        wrapped = WRAPPERS[word](wrapped)
    content: Any = wrapped.state_dict()
    for key in reversed(keys):
        content = {key: content, "epoch": 3, "best": torch.tensor(0.9)}
    path = tmp_path_factory.mktemp("w") / "w.pt"
    torch.save(content, path)
    fresh = network(kind, seed=2)
    assert not equal(fresh, net)
    assert equal(load_weights(fresh, path), net)


def test_a_file_of_opacus_gives_the_plain_weights(tmp_path: Path) -> None:
    opacus = pytest.importorskip("opacus", reason='needs pip install "leakgauge[opacus]"')
    net = network(0, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(opacus.GradSampleModule(net).state_dict(), tmp_path / "w.pt")
    assert equal(load_weights(network(0, seed=2), tmp_path / "w.pt"), net)


@pytest.mark.parametrize("word", sorted(WRAPPERS))
def test_a_plain_file_fits_a_wrapped_model(tmp_path: Path, word: str) -> None:
    """A task may hold the wrapper, and the file the network alone."""
    net = network(1, seed=1)
    torch.save(net.state_dict(), tmp_path / "w.pt")
    fresh = WRAPPERS[word](network(1, seed=2))
    assert equal(load_weights(fresh, tmp_path / "w.pt"), WRAPPERS[word](net))


def plain(seed: int = 1) -> State:
    return dict(network(1, seed).state_dict())


def before(word: str, state: State) -> State:
    return {f"{word}{name}": leaf for name, leaf in state.items()}


@pytest.mark.parametrize(
    ("content", "both"),
    [
        ({"state_dict": plain(), "state_dict_ema": plain(2)}, ("state_dict: ", "state_dict_ema: ")),
        (before("model.", plain()) | before("ema.module.", plain(2)), ("'model.0", "'ema.module")),
        ({"model": plain(), "x": {"ema": before("module.", plain(2))}}, ("model: ", "x.ema: ")),
    ],
    ids=["keys", "names", "mixed"],
)
def test_two_copies_are_refused_with_the_names_of_both(
    tmp_path: Path, content: dict[str, Any], both: tuple[str, str]
) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match="hold 2 copies of Sequential") as refusal:
        load_weights(network(1, seed=0), tmp_path / "w.pt")
    said = str(refusal.value)
    assert all(word in said for word in both)
    assert "whose names are '0.weight'" in said


def test_of_two_copies_the_one_with_the_model_s_shapes_is_loaded(tmp_path: Path) -> None:
    wide = nn.Sequential(nn.Linear(2, 9), nn.BatchNorm1d(9), nn.Sequential(nn.Linear(9, 2)))
    torch.save({"student": plain(), "teacher": wide.state_dict()}, tmp_path / "w.pt")
    assert equal(load_weights(network(1, seed=0), tmp_path / "w.pt"), network(1, seed=1))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (before("model.", plain()) | {"mean": torch.zeros(2)}, "unexpected 'mean'"),
        (before("model.", plain()) | {"head.weight": torch.zeros(2)}, "unexpected 'head.weight'"),
        (before("1.", plain()), "missing '0.weight'.*unexpected '1.0.weight'"),  # after a layer
        ({"a.weight": torch.zeros(3, 2)}, "missing '0.weight'.*unexpected 'a.weight'"),
    ],
    ids=["normalises", "a part", "in a Sequential", "another"],
)
def test_a_file_of_another_function_is_refused(tmp_path: Path, content: State, says: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match=says):
        load_weights(network(1, seed=0), tmp_path / "w.pt")


def test_weights_of_a_loss_do_not_matter(tmp_path: Path) -> None:
    content = before("model.", plain()) | {"criterion.weight": torch.ones(2)}
    torch.save({"state_dict": content}, tmp_path / "w.pt")
    assert equal(load_weights(network(1, seed=0), tmp_path / "w.pt"), network(1, seed=1))


def test_one_of_two_tied_names_is_enough_and_both_must_agree(tmp_path: Path) -> None:
    net = network(3, seed=1)
    save_file({"wte.weight": net.state_dict()["wte.weight"]}, tmp_path / "one")
    assert equal(load_weights(network(3, seed=0), tmp_path / "one"), net)
    torch.save({**net.state_dict(), "head.weight": torch.zeros(5, 3)}, tmp_path / "two")
    with pytest.raises(InputError, match=r"'wte.weight' and 'head.weight' differ"):
        load_weights(network(3, seed=0), tmp_path / "two")


@pytest.mark.parametrize(
    "made",
    [
        lambda leaf: (leaf * 127).to(torch.int8),
        lambda leaf: leaf.to(torch.complex64),
        lambda leaf: torch.quantize_per_tensor(leaf, 0.1, 0, torch.qint8),
        lambda leaf: leaf.to(torch.float8_e4m3fn),
    ],
    ids=["int8", "complex", "qint8", "float8"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weights_of_other_types_are_refused(
    tmp_path: Path, made: Callable[[Tensor], Tensor]
) -> None:
    state = {name: made(leaf) for name, leaf in network(0, seed=0).state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"^weights .*'weight' is [^\n]*; save [^\n]*$"):
        load_weights(network(0, seed=0), tmp_path / "w.pt")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    quantised = torch.ao.quantization.quantize_dynamic(network(1, seed=0), {nn.Linear})
    torch.save(quantised.state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"^weights .* is a quantised weight; save [^\n]*$"):
        load_weights(network(1, seed=0), tmp_path / "w.pt")


def test_a_state_is_read_without_a_model(tmp_path: Path) -> None:
    torch.save({"net": before("module._orig_mod.", plain()), "epoch": 1}, tmp_path / "w.pt")
    assert read_state(tmp_path / "w.pt").keys() == plain().keys()
    torch.save({"model": plain(), "net": plain()}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="hold 2 state dicts, under 'model', 'net'"):
        read_state(tmp_path / "w.pt")
