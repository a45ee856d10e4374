"""The checksum of weights that clients never send, against those of the auditor's model."""

import copy
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_base import BaseSource, base_of, digest
from leakgauge.integrations.kept_file import KeptBase, read_about
from leakgauge.integrations.kept_reading import KeptUpdate, read_kept
from leakgauge.integrations.training_settings import LocalTraining

SENT = "2."
"""Where the names of the parameters begin that clients send."""


def net(seed: int = 0) -> nn.Module:
    """A base with a head that alone is trained."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    for name, leaf in model.named_parameters():
        leaf.requires_grad_(name.startswith(SENT))
    return model


class Wrapped(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.module = net


def head(model: nn.Module, front: str = "") -> dict[str, Tensor]:
    state = model.state_dict()
    return {f"{front}{name}": leaf for name, leaf in state.items() if name.startswith(SENT)}


def kept(folder: Path, base: KeptBase | None, front: str = "") -> KeptUpdate:
    before = head(net(), front)
    after = {name: leaf + 0.1 for name, leaf in before.items()}
    training = LocalTraining(lr=0.1, batch_size=2, epochs=1)
    sent = Exchange(1, "0", before, after, examples=2, base=base)
    path = Keeper(folder, training=training).keep(sent)
    assert path is not None
    assert read_about(path).base == base
    return read_kept(folder).updates[0]


@pytest.mark.parametrize(
    "same",
    [
        lambda model: model,
        lambda model: Wrapped(model),
        lambda model: model.double(),
        lambda model: model.eval(),
        lambda model: nn.Sequential(*model),
    ],
    ids=["the model", "a wrapper", "a finer type", "another mode", "another container"],
)
def test_the_same_base_is_recognised(
    tmp_path: Path, same: Callable[[nn.Module], nn.Module]
) -> None:
    base = BaseSource(net).base(head(net(), "module."))
    assert base is not None
    assert base.tensors == 4
    one = kept(tmp_path, base, "module.")
    assert next(iter(one.update(same(net())).before)).endswith("2.weight")


def other_seed() -> nn.Module:
    return net(1)


def one_number() -> nn.Module:
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] += 1e-6
    return model


def rounded() -> nn.Module:
    model = net()
    model[0].weight.data = model[0].weight.data.bfloat16().float()
    return model


@pytest.mark.parametrize("other", [other_seed, one_number, rounded])
def test_another_base_is_refused_in_one_line(
    tmp_path: Path, other: Callable[[], nn.Module]
) -> None:
    one = kept(tmp_path, BaseSource(net()).base(head(net())))
    auditors = other()
    auditors[2].load_state_dict(net()[2].state_dict())  # what clients send is no part of it
    with pytest.raises(InputError, match=r"^round 1, client 0: [^\n]* load the base weights"):
        one.update(auditors)
    assert kept(tmp_path / "b", None).update(auditors).steps == 1


def test_a_checksum_follows_changes_of_the_model() -> None:
    model, supplied = net(), set(head(net()))
    first = base_of(model, supplied)
    assert base_of(model, supplied) == first == base_of(copy.deepcopy(model), supplied)
    with torch.no_grad():
        model[0].bias.add_(1)
    assert base_of(model, supplied) != first
    assert base_of(model, set(model.state_dict())) is None
    assert base_of(model, supplied - {"2.bias"}) != base_of(model, supplied)


def test_content_decides_and_not_names_order_or_type() -> None:
    one, other = torch.tensor([0.5, 1.0]), torch.tensor([[0.1]])
    assert digest([one, other]) == digest([other, one.half()])
    assert digest([one]) != digest([one[None]])
    assert digest([one]) != digest([one + 2**-20])
    assert digest([torch.tensor([0.1], dtype=torch.float64)]) != digest([torch.tensor([0.1])])
    assert digest([torch.tensor([1, 2])]) != digest([torch.tensor([1.0, 2.0])])
    assert digest([torch.zeros(0)]) == digest([torch.zeros(0)])


def test_a_model_that_cannot_be_had_costs_no_update(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> nn.Module:
        raise RuntimeError("no network")

    with caplog.at_level(logging.WARNING, "leakgauge"):
        source = BaseSource(broken)
        assert source.base(head(net())) is None
        assert source.base(head(net())) is None
    assert [one.getMessage() for one in caplog.records] == [
        "the checksum of frozen weights is not kept (RuntimeError: no network)"
    ]
    assert BaseSource(None).base(head(net())) is None
    assert BaseSource(nn.Linear(7, 1)).base(head(net())) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_base_under_adapters_is_compared(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason='needs pip install "leakgauge[hf]"')

    def adapted(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        base = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        model: nn.Module = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["0"]))
        return model

    model = adapted(0)
    before = dict(peft.get_peft_model_state_dict(model))
    after = {name: leaf + 0.1 for name, leaf in before.items()}
    base = BaseSource(model).base(before)
    assert base is not None
    assert base.tensors == 4
    training = LocalTraining(lr=0.1, batch_size=2, epochs=1)
    Keeper(tmp_path, training=training).keep(Exchange(1, "0", before, after, examples=2, base=base))
    (one,) = read_kept(tmp_path).updates
    assert len(one.update(adapted(0)).before) == 2
    with pytest.raises(InputError, match="load the base weights"):
        one.update(adapted(1))
