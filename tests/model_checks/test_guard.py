"""The check of received models: planted servers, honest models, and what it leaves unchecked."""

import copy

import pytest
import torch
from torch import Tensor, nn

import leakgauge
from leakgauge import ModelRefusedError, Task, guard
from leakgauge.core.checks import InputError
from leakgauge.data.fingerprints import fingerprint
from leakgauge.inversion.servers.catalog import SERVERS, server_of
from leakgauge.inversion.servers.server import ServerKnowledge
from leakgauge.model_checks.observed import observe
from leakgauge.model_checks.signs import (
    CHANGED_LAYERS,
    EQUAL_ROWS,
    MUTED,
    REPLACED,
    SINGLE_UNITS,
    ZERO_ROWS,
)

WIDTH, CLASSES = 20, 4


def data(count: int = 256, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, WIDTH, generator=generator)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def net(seed: int = 0, *, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(96)] if norm else []
    return nn.Sequential(nn.Linear(WIDTH, 96), *middle, nn.ReLU(), nn.Linear(96, CLASSES))


EXPECTED = {
    "robbing": {EQUAL_ROWS},
    "curious": {SINGLE_UNITS},
    "quantile": {SINGLE_UNITS},
    "fishing": {ZERO_ROWS, MUTED},
}


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("seed", range(3))
def test_each_server_is_refused_in_the_first_round(name: str, seed: int) -> None:
    server = server_of(name)
    assert server is not None
    public, labels = data(1000, 100 + seed)
    known = ServerKnowledge(public, labels, torch.tensor(0.0), torch.tensor(1.0), 64)
    sent = server.alter(Task(net(seed)), known, torch.Generator().manual_seed(seed))
    x, y = data(128, seed)
    verdict = guard(sent.model, x=x, y=y)
    assert {one.name for one in verdict.reasons} == EXPECTED[name]
    with pytest.raises(ModelRefusedError, match="made to give records away"):
        verdict.require()


def test_fishing_by_an_unused_output_and_by_equal_rows_is_refused() -> None:
    """A server that hides the rows of zeros behind equal rows still mutes the other records."""
    public, labels = data(1000, 5)
    known = ServerKnowledge(public, labels, torch.tensor(0.0), torch.tensor(1.0), 64)
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, CLASSES + 1))
    server = server_of("fishing")
    assert server is not None
    sent = server.alter(Task(wide), known, torch.Generator().manual_seed(0)).model
    with torch.no_grad():
        sent[2].weight.add_(torch.randn(96))  # type: ignore[index, union-attr, operator]
    x, y = data(128)
    verdict = guard(sent, x=x, y=y)
    assert [one.name for one in verdict.reasons] == [MUTED]


@pytest.mark.parametrize("norm", [False, True])
def test_an_honest_training_is_never_refused(norm: bool) -> None:
    model, (x, y) = net(norm=norm), data(512)
    y = (x[:, 0] * CLASSES).long()
    previous = None
    for number in range(40):
        verdict = guard(model.eval(), previous, x=x[:128], y=y[:128])
        assert not verdict.refused, str(verdict)
        previous = copy.deepcopy(model.state_dict())
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0 if number % 10 == 5 else 0.1)
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


def test_a_head_of_zeros_is_honest() -> None:
    model = net()
    nn.init.zeros_(model[2].weight)  # type: ignore[arg-type]
    x, y = data(128)
    assert not guard(model, x=x, y=y).refused


def test_a_layer_that_was_replaced_alone_is_refused() -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, CLASSES)]
    before = nn.Sequential(*layers)
    after = copy.deepcopy(before)
    with torch.no_grad():
        for leaf in after.parameters():
            leaf.add_(0.001 * torch.randn_like(leaf))
        after[0].weight.normal_(std=0.2)  # type: ignore[union-attr, operator]
    assert [one.name for one in guard(after, before).reasons] == [REPLACED]
    everything = nn.Sequential(*copy.deepcopy(layers))
    for part in everything[::2]:
        part.reset_parameters()  # type: ignore[operator]
    assert not guard(everything, before).refused


def test_a_layer_more_or_another_shape_is_refused() -> None:
    wider = nn.Sequential(nn.Linear(WIDTH, 97), nn.ReLU(), nn.Linear(97, CLASSES))
    assert "other layers" not in str(guard(wider, copy.deepcopy(wider)).reasons)
    verdict = guard(wider, net().state_dict())
    assert CHANGED_LAYERS in {one.name for one in verdict.reasons}
    assert "3 parameters differ" in str(verdict)


def test_the_verdict_says_what_was_not_checked() -> None:
    said = str(guard(net()))
    assert "no sign of an altered model" in said
    assert "no previous model" in said
    assert "no x and y" in said
    x, y = data(16)
    assert "batches of 16, 32 needed" in str(guard(net(), x=x, y=y))
    two = nn.Sequential(nn.Linear(WIDTH, 96), nn.ReLU(), nn.Linear(96, 2))
    x, y = data(64)
    assert "with two outputs" in str(guard(two, x=x, y=y % 2))
    scaled = nn.Sequential(net(), nn.Softplus())
    assert "the last layer (it is not linear)" in str(guard(scaled, x=x, y=y))


def test_the_model_stays_as_it_is() -> None:
    model, (x, y) = net(norm=True).train(), data(64)
    before = fingerprint(model.state_dict())
    guard(model, net(norm=True), x=x, y=y)
    assert fingerprint(model.state_dict()) == before
    assert model.training
    assert not model[0]._forward_hooks


def test_slopes_are_those_of_single_records() -> None:
    model, (x, y) = net(), data(8)
    seen = observe(Task(model), x, y)
    assert seen.head == "2"
    for at in range(8):
        hidden = model[:2](x[at : at + 1])
        logits = model[2](hidden.detach())
        logits.retain_grad()
        nn.functional.cross_entropy(logits, y[at : at + 1]).backward()
        torch.testing.assert_close(seen.layers[1].slopes[at], logits.grad[0])
        model.zero_grad()


def test_wrong_records_are_refused() -> None:
    x, y = data(64)
    with pytest.raises(InputError, match="give both x and y, or neither"):
        guard(net(), x=x)
    with pytest.raises(InputError, match="64 records and 63 labels"):
        guard(net(), x=x, y=y[1:])
    with pytest.raises(InputError, match="does not run on these records"):
        guard(net(), x=x[:, 1:], y=y)
    with pytest.raises(InputError, match="batch_size is 0"):
        guard(net(), x=x, y=y, batch_size=0)
    assert leakgauge.guard is guard
