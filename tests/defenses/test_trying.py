"""A user's transform that breaks the rules is refused in one line before a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Task
from leakgauge.defenses import Chain, Defense, Identity, SignTransform, parse_defense
from leakgauge.defenses.transform import Transform
from support.command import run

TASK = Task(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))


@dataclass(frozen=True)
class Own(Transform):
    """A transform as a user writes it."""

    change: Callable[[Grads, list[torch.Generator]], object]

    def __call__(self, grads: Grads, rngs: list[torch.Generator]) -> Grads:  # type: ignore[override]
        return self.change(grads, rngs)  # type: ignore[return-value]


def drawn(grads: Grads, rngs: list[torch.Generator]) -> Grads:
    return {
        name: torch.stack(
            [
                row + torch.randn(row.shape, generator=rng)
                for row, rng in zip(leaf, rngs, strict=True)
            ]
        )
        for name, leaf in grads.items()
    }


FINE = {
    "rounded": lambda grads, rngs: {name: leaf.round() for name, leaf in grads.items()},
    "another order of parameters": lambda grads, rngs: dict(reversed(grads.items())),
    "draws for each row": drawn,
}
FAULTY = {
    "another shape": (
        lambda grads, rngs: {name: leaf.flatten(1) for name, leaf in grads.items()},
        r"returns '0.weight' as \[2, 12\] of torch.float32; expected \[2, 4, 3\]",
    ),
    "another type": (
        lambda grads, rngs: {name: leaf.double() for name, leaf in grads.items()},
        r"'0.weight' as \[2, 4, 3\] of torch.float64; expected \[2, 4, 3\] of torch.float32",
    ),
    "no tensor": (
        lambda grads, rngs: {name: leaf.tolist() for name, leaf in grads.items()},
        "returns '0.weight' as list; expected a tensor",
    ),
    "fewer rows": (
        lambda grads, rngs: {name: leaf[:1] for name, leaf in grads.items()},
        r"returns '0.weight' as \[1, 4, 3\]",
    ),
    "fewer parameters": (
        lambda grads, rngs: {name: leaf for name, leaf in grads.items() if name != "2.bias"},
        "returns no parameter '2.bias'",
    ),
    "more parameters": (
        lambda grads, rngs: {**grads, "more": torch.zeros(2)},
        "returns the unknown parameter 'more'",
    ),
    "a list": (lambda grads, rngs: list(grads.values()), "returns list; expected a dict"),
    "not finite": (
        lambda grads, rngs: {name: leaf / 0 for name, leaf in grads.items()},
        "returns numbers that are not finite for '0.weight'",
    ),
    "an error": (
        lambda grads, rngs: dict.fromkeys(grads, 1 // 0),
        "fails on gradients of this model: ZeroDivisionError",
    ),
    "in place": (
        lambda grads, rngs: {name: leaf.mul_(2) for name, leaf in grads.items()},
        "changes the gradient of '0.weight' that it gets",
    ),
    "other generators": (
        lambda grads, rngs: {name: leaf + torch.rand_like(leaf) for name, leaf in grads.items()},
        "gives two results for the same gradients; draw random numbers from rngs",
    ),
    "across rows": (
        lambda grads, rngs: {name: leaf - leaf.mean(0) for name, leaf in grads.items()},
        "gives a row another result next to other rows",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("place", ["update", "per_example", "in a chain"])
def test_a_faulty_one_is_refused(name: str, place: str) -> None:
    change, message = FAULTY[name]
    own = Own(change)
    defense = {
        "update": Defense("mine", update=own),
        "per_example": Defense("mine", per_example=own),
        "in a chain": Defense("mine", update=Chain((Identity(), own))),
    }[place]
    with pytest.raises(InputError, match=f"^defense 'mine' .*{message}") as caught:
        defense.check(TASK)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FINE)
def test_one_that_keeps_the_rules_passes(name: str) -> None:
    Defense("mine", update=Own(FINE[name])).check(TASK)
    Defense("mine", update=Chain((Own(FINE[name]), SignTransform()))).check(TASK)


@pytest.mark.parametrize("text", ["sign", "prune", "svt", "noise:std=1", "sign:layers=first"])
def test_the_built_in_ones_keep_the_rules(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakgauge.defenses.trying._is_own", lambda transform: True)
    parse_defense(text, batch_size=2).check(TASK)


@pytest.mark.parametrize(
    "question", ["property", "reconstruction", "membership", "timeline", "user"]
)
def test_each_question_refuses_it_in_one_line(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faulty.py").write_text(
        "from leakgauge.defenses import Defense, Transform\n"
        "class Own(Transform):\n"
        "    def __call__(self, grads, rngs):\n"
        "        return {name: leaf.flatten(1) for name, leaf in grads.items()}\n"
        "def build():\n"
        "    return Defense('own', update=Own())\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("audit", "randhie", "--ask", question, "--defense", "faulty:build")
    ended = run(*words, "--out", tmp_path / "out", cwd=tmp_path)
    assert ended.returncode == 2
    assert "error: defense 'faulty:build' returns '0.weight' as [2, " in ended.stderr
    assert "fault of leakgauge" not in ended.stderr
