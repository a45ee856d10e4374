"""The content of models and losses: each change that alters figures, and no other, is seen."""

import copy
import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Task
from leakgauge.data.content import content_digest
from leakgauge.runs.sources import task_source


class Own(nn.Module):
    def __init__(self, *layers: nn.Module, scale: float = 1.0) -> None:
        super().__init__()
        self.layers, self.scale = nn.Sequential(*layers), scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.layers(x)


def smoothed(by: float):
    return lambda outputs, targets: cross_entropy(outputs, targets, label_smoothing=by)


def frozen(model: nn.Module) -> nn.Module:
    next(model.parameters()).requires_grad_(False)
    return model


def buffered(value: float) -> nn.Module:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.full((2,), value), persistent=False)
    return model


WEIGHT = torch.ones(2)


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, targets, weight=WEIGHT)


def task(model: nn.Module, loss=cross_entropy) -> str:
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.fill_(0.5)
    data = Dataset(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))
    return task_source(Task(model, loss), data).fingerprint


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda: task(Own(nn.ReLU())), lambda: task(Own(nn.Tanh()))),
        (lambda: task(Own(scale=1.0)), lambda: task(Own(scale=2.0))),
        (lambda: task(nn.Dropout(0.1)), lambda: task(nn.Dropout(0.2))),
        (lambda: task(nn.Linear(2, 2)), lambda: task(frozen(nn.Linear(2, 2)))),
        (lambda: task(buffered(0.0)), lambda: task(buffered(1.0))),
        (lambda: task(Own(), smoothed(0.0)), lambda: task(Own(), smoothed(0.1))),
        (lambda: task(Own()), lambda: task(Own(), nn.CrossEntropyLoss(label_smoothing=0.1))),
        (lambda: task(Own(), partial(cross_entropy, label_smoothing=0.1)),
         lambda: task(Own(), partial(cross_entropy, label_smoothing=0.2))),
        (lambda: task(nn.Linear(2, 2).bfloat16()), lambda: task(nn.Linear(2, 2).half())),
    ],
)  # fmt: skip
def test_what_weights_do_not_hold_counts(before, after) -> None:
    assert before() == before()
    assert before() != after()


def test_global_values_that_a_loss_uses_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = task(Own(), weighted)
    assert task(Own(), weighted) == before
    monkeypatch.setattr(sys.modules[__name__], "WEIGHT", torch.tensor([1.0, 2.0]))
    assert task(Own(), weighted) != before


def test_hooks_count_by_their_code_and_not_by_their_number() -> None:
    def hooked() -> nn.Module:
        model = nn.Linear(2, 2)
        model.register_forward_hook(lambda module, given, out: 2 * out)
        return model

    assert task(hooked()) == task(hooked()) != task(nn.Linear(2, 2))


def test_a_run_leaves_the_content_as_it_was() -> None:
    model = Own(nn.Linear(2, 2), nn.ReLU())
    before = content_digest(model)
    model(torch.zeros(3, 2)).sum().backward()
    assert content_digest(model) == before


def test_circles_and_what_cannot_be_taken_apart_have_a_digest() -> None:
    model = Own(nn.Linear(2, 2))
    with open(__file__) as file:
        model.held = [model, file, iter(()), sys, Own]
        assert content_digest(model) == content_digest(model)


def test_endless_nesting_is_refused_in_a_line() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InputError, match="too deeply"):
        content_digest(nested)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(PLAIN, PLAIN)
def test_plain_values_have_equal_digests_as_python_writes_them_equally(one, other) -> None:
    assert content_digest(one) == content_digest(copy.deepcopy(one))
    assert (content_digest(one) == content_digest(other)) == (repr(one) == repr(other))


SCRIPT = """
__name__ = "of_a_user"  # __main__ is another module in a test
import torch
from leakgauge.data.content import content_digest

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.names, self.layer = {"a", "b", "c"}, torch.nn.Identity()

    def forward(self, x):
        return self.layer(x) if x.shape[0] in {1, 2, 3} else x

print(content_digest(Net(), lambda a, b: a - b, {"x", "y"}))
"""


SETS = 'print(*map(list, ({"a", "b", "c"}, {"x", "y"})))'


def printed(script: str, seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.slow
@pytest.mark.process
def test_the_digest_is_that_of_every_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Also of one in which the same sets have another order."""
    exec(SETS)
    order = capsys.readouterr().out
    seed = next(seed for seed in map(str, range(100)) if printed(SETS, seed) != order)
    exec(compile(SCRIPT, "<string>", "exec"), {})
    assert printed(SCRIPT, seed) == capsys.readouterr().out
