"""Find a model's parameters under the names that a wrapper gave them.

A wrapper puts words before a name (``module.``, Lightning's ``model.``) or into it
(``_orig_mod``), and peft leaves out the name of an adapter. Names are compared without these; what
stands before all names may differ.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from torch import nn

from leakgauge.core.checks import InputError

Value = TypeVar("Value")

ANYWHERE = frozenset(
    {"module", "_module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
"""Words of wrappers that may stand anywhere in a name: they change no output."""

BEFORE = ANYWHERE | {"model", "base_model", "net", "network", "ema", "ema_model", "swa_model"}
"""Words that may stand before all names of either side."""

COUNTERS = frozenset({"n_averaged"})
"""Last words of tensors that wrappers add; no output depends on them."""

_ADAPTER = re.compile(r"lora_\w+|ia3_l|vera_lambda_[bd]")
_SAVED = "modules_to_save"  # peft's copy of a layer that is trained whole


def plain_name(name: str) -> str:
    """Return a name without the words of wrappers and without the names of adapters.

    >>> plain_name("module.0._orig_mod.weight")
    '0.weight'
    >>> plain_name("c_attn.lora_A.default.weight"), plain_name("c_attn.lora_A.weight")
    ('c_attn.lora_A', 'c_attn.lora_A')
    >>> plain_name("score.modules_to_save.default.weight")
    'score.weight'
    """
    *words, last = name.split(".")
    kept: list[str] = []
    before = ""
    for word in words:
        follows = before == _SAVED or (_ADAPTER.fullmatch(before) is not None)
        if word not in ANYWHERE and word != _SAVED and not follows:
            kept.append(word)
        before = word
    if kept and _ADAPTER.fullmatch(kept[-1]) and (last == "weight" or before == kept[-1]):
        return ".".join(kept if last != "bias" else [*kept, last])
    return ".".join([*kept, last])


def ways(
    sent: Collection[str], own: Collection[str], needed: Collection[str]
) -> list[dict[str, str]]:
    """Return each way to find a model's names among those that came, ``{own: sent}``.

    Equal names are the only way where all that are needed came.

    Args:
        sent: the names that came.
        own: all names of the model.
        needed: those of ``own`` that must be found.

    >>> ways(["model.w", "ema.w", "epoch"], ["w"], ["w"])
    [{'w': 'model.w'}, {'w': 'ema.w'}]
    """
    needed = list(needed) or list(own)
    if all(name in sent for name in needed):
        return [{name: name for name in own if name in sent}]
    theirs, ours = _plain(sent), _plain([name for name in own if not is_counter(name)])
    to_find = [plain for plain, name in ours.items() if name in set(needed)]
    found: list[dict[str, str]] = []
    for head in _heads(ours):
        tails = {plain: plain.removeprefix(head) for plain in ours}
        longest = max((tails[plain] for plain in to_find), key=len)
        for one in theirs:
            front = one.removesuffix(longest)
            if not one.endswith(longest) or not _is_front(front, behind=head):
                continue
            way = {
                ours[plain]: theirs[front + tail]
                for plain, tail in tails.items()
                if front + tail in theirs
            }
            if all(ours[plain] in way for plain in to_find) and way not in found:
                found.append(way)
    return found


def only_way(
    sent: Collection[str], own: Collection[str], needed: Collection[str], what: str, model: str
) -> dict[str, str]:
    """Return the only way to find a model's names among those that came, ``{own: sent}``.

    Args:
        sent: the names that came.
        own: all names of the model.
        needed: those of ``own`` that must be found.
        what: words for what came, for an error.
        model: words for the model.

    Raises:
        InputError: a needed name is missing, or could be several of those that came.
    """
    found = ways(sent, own, needed)
    if len(found) == 1:
        return found[0]
    if found:
        copies = "; ".join(few(way.values(), 2) for way in found[:4])
        raise InputError(
            f"{what} has {len(found)} copies of {model} ({copies}), whose names are {few(own)}; "
            "pass one of them alone"
        )
    missing = [name for name in needed if name not in sent]
    others = [name for name in sent if name not in set(needed)]
    hint = f"; it has {few(others)}" if others else ""
    raise InputError(
        f"{what} has no {few(missing)}, which {model} has{hint}; pass the model that was trained, "
        "and freeze there what is not sent"
    )


def model_way(sent: Collection[str], model: nn.Module, what: str) -> dict[str, str]:
    """Return the only way to find all trainable parameters, and more, of a model, ``{own: sent}``.

    Raises:
        InputError: as ``only_way``.
    """
    needed = [name for name, leaf in model.named_parameters() if leaf.requires_grad]
    own = dict.fromkeys([*model.state_dict(), *needed])
    return only_way(sent, own, needed, what, type(model).__name__)


def renamed(sent: Mapping[str, Value], way: Mapping[str, str]) -> dict[str, Value]:
    """Return what came under the model's names; other names stay, except wrappers' counters.

    Args:
        sent: values by the names that came.
        way: as from ``only_way``.

    >>> renamed({"_orig_mod.w": 1, "n_averaged": 2}, {"w": "_orig_mod.w"})
    {'w': 1}
    """
    back = {theirs: ours for ours, theirs in way.items()}
    return {back.get(name, name): value for name, value in sent.items() if not is_counter(name)}


def is_counter(name: str) -> bool:
    """Return whether a wrapper added this tensor for its own use."""
    return name.rpartition(".")[2] in COUNTERS


def few(names: Iterable[str], most: int = 3) -> str:
    """Return the first names in quotes, and the number of others.

    >>> few(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    shown = list(names)
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(repr(name) for name in shown[:most]) + more


def _plain(names: Collection[str]) -> dict[str, str]:
    """Return names by their plain form; by themselves where two would become one."""
    plain = {plain_name(name): name for name in names}
    return plain if len(plain) == len(names) else {name: name for name in names}


def _heads(names: Iterable[str]) -> list[str]:
    """Return what stands before all names, from nothing to the longest, each with its dot."""
    split = [name.split(".")[:-1] for name in names]
    heads = [""]
    for words in zip(*split, strict=False):
        if len(set(words)) > 1 or words[0].isdecimal():
            break
        heads.append(f"{heads[-1]}{words[0]}.")
    return heads


def _is_front(front: str, *, behind: str) -> bool:
    """Return whether a front may take the place of ``behind``, in which no number stands.

    A number is a place in a Sequential, whose other layers change the outputs. Where both sides
    have words in front, all must be those of wrappers.
    """
    if front and not front.endswith("."):
        return False
    words = front.split(".")[:-1]
    if any(word.isdecimal() for word in words):
        return False
    return not (front and behind) or {*words, *behind.split(".")[:-1]} <= BEFORE
