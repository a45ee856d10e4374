"""Updates under the names of wrappers, of peft, or without names, against the true gradient."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_reading import read_kept
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.training import Update

RATE = 0.1
State = dict[str, Tensor]


class Logged(nn.Module):
    """Wraps a network, as a task of a language model does."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def step(model: nn.Module) -> tuple[State, State, State]:
    """Return the state before and after one step of SGD, and the gradient by the model's names."""
    x, y = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 2
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    nn.functional.cross_entropy(model(x), y).backward()
    gradient = {name: leaf.grad.clone() for name, leaf in model.named_parameters()}
    torch.optim.SGD(model.parameters(), RATE).step()
    return before, {name: leaf.clone() for name, leaf in model.state_dict().items()}, gradient


def kept(folder: Path, before: State, after: State, *, kind: str = "weights") -> Keeper:
    keeper = Keeper(folder, training=LocalTraining(lr=RATE, batch_size=6, epochs=1))
    keeper.keep(Exchange(1, "0", before, after, kind=kind, examples=6))
    return keeper


def same(update: Update, gradient: State, front: str = "") -> None:
    found = update.as_gradient()
    assert found.keys() == {f"{front}{name}" for name in gradient}
    for name, leaf in gradient.items():
        torch.testing.assert_close(found[f"{front}{name}"][0], leaf, atol=1e-5, rtol=1e-4)


def named(word: str, state: State) -> State:
    return {f"{word}{name}": leaf for name, leaf in state.items()}


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["", "module.", "_module.", "_orig_mod.", "model.", "module._orig_mod.net."]),
    st.sampled_from(["", "_module.", "module._orig_mod."]),
    st.booleans(),
    st.sampled_from(["weights", "change"]),
)
def test_a_kept_update_gives_the_gradient_under_any_wrapper_s_names(
    tmp_path_factory: pytest.TempPathFactory, server: str, client: str, wrapped: bool, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    before, after, gradient = step(net())
    if kind == "change":
        after = {name: leaf - before[name] for name, leaf in after.items()}
    kept(folder, named(server, before), named(client, after), kind=kind)
    model = Logged(net()) if wrapped else net()
    same(read_kept(folder).updates[0].update(model), gradient, "net." if wrapped else "")
    round_ = read_kept(folder).round(1, model)
    assert round_.received[0].keys() == model.state_dict().keys()


@pytest.mark.parametrize("word", ["module.", "_orig_mod.", "model."])
def test_a_stored_update_fits_under_a_wrapper_s_names(tmp_path: Path, word: str) -> None:
    before, after, gradient = step(net())
    update = Update.from_state_dicts(named(word, before), named(word, after), lr=RATE)
    update.save(tmp_path / "u")
    again = Update.load(tmp_path / "u").fitted(net())
    same(again, gradient)
    assert again.held.keys() == net().state_dict().keys() - gradient.keys()
    assert again.fitted(net()) is again
    same(Update.from_state_dicts(named(word, before), named(word, after), lr=RATE, model=net()),
         gradient)  # fmt: skip


@pytest.mark.parametrize(
    "chosen",
    [
        lambda model: list(model.state_dict()),
        lambda model: [name for name, _ in model.named_parameters()],
        lambda model: [name for name in model.state_dict() if "batches" not in name],
    ],
    ids=["state dict", "parameters", "without counts"],
)
def test_arrays_without_names_may_be_the_state_or_the_parameters(
    tmp_path: Path, chosen: Callable[[nn.Module], list[str]]
) -> None:
    before, after, gradient = step(net())
    names = chosen(net())
    lists = ({str(at): one[name] for at, name in enumerate(names)} for one in (before, after))
    kept(tmp_path, *lists)
    same(read_kept(tmp_path).updates[0].update(net()), gradient)


def test_a_list_with_a_gap_is_refused(tmp_path: Path) -> None:
    before, after, _ = step(net())
    lists = [
        {str(at): leaf for at, leaf in enumerate(one.values()) if at != 5}
        for one in (before, after)
    ]
    kept(tmp_path, *lists)
    with pytest.raises(InputError, match="without names, number 5 was not kept"):
        read_kept(tmp_path).updates[0].update(net())


@pytest.mark.parametrize("kind", ["weights", "change"])
def test_a_part_of_the_weights_is_refused_until_the_rest_is_frozen(
    tmp_path: Path, kind: str
) -> None:
    """As of FedBN, whose clients keep their normalisation; its change is not 0."""
    before, after, gradient = step(net())
    if kind == "change":
        after = {name: leaf - before[name] for name, leaf in after.items()}
    own = {name: leaf for name, leaf in after.items() if not name.startswith("1.")}
    kept(tmp_path, before, own, kind=kind)
    update = read_kept(tmp_path).updates[0]
    with pytest.raises(InputError, match=r"has no '1.weight', '1.bias'.*freeze there"):
        update.update(net())
    model = net()
    model.requires_grad_(False)
    for at in (0, 2):
        model.get_submodule(str(at)).requires_grad_(True)
    same(update.update(model), {k: v for k, v in gradient.items() if not k.startswith("1.")})


def test_both_lists_of_names_are_shown(tmp_path: Path) -> None:
    before, after, _ = step(net())
    kept(tmp_path, named("1.", before), named("1.", after))  # behind another layer
    with pytest.raises(InputError, match=r"no '0.weight', .* has; it has '1\.[^\n]*$"):
        read_kept(tmp_path).updates[0].update(net())
    copies = named("model.", before) | named("ema.", before)
    with pytest.raises(InputError, match=r"2 copies .*'model.*'ema.*names are '0.weight'"):
        Update.from_state_dicts(copies, named("model.", after), lr=RATE, model=net())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["c_attn"]},
        {"target_modules": ["c_attn"], "use_dora": True},
        {"target_modules": ["c_attn", "wte"], "modules_to_save": ["score"]},
        {"target_modules": ["c_attn"], "bias": "lora_only"},
    ],
    ids=["lora", "dora", "embedding and a saved layer", "bias"],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_peft_s_names_are_those_of_the_adapters(
    tmp_path: Path, settings: dict[str, object], wrapped: bool
) -> None:
    """``get_peft_model_state_dict`` leaves out the name of the adapter."""
    peft = pytest.importorskip("peft", reason='needs pip install "leakgauge[hf]"')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import GPT2Config, GPT2ForSequenceClassification

    config = GPT2Config(
        n_layer=1, n_embd=8, n_head=2, vocab_size=20, n_positions=8, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    base = GPT2ForSequenceClassification(config).eval()
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, fan_in_fan_out=True, **settings))
    gradient = {
        name: torch.randn_like(leaf)
        for name, leaf in model.named_parameters()
        if leaf.requires_grad
    }

    def sent() -> State:
        return {k: v.detach().clone() for k, v in peft.get_peft_model_state_dict(model).items()}

    before = sent()
    with torch.no_grad():
        for name, leaf in model.named_parameters():
            leaf -= RATE * gradient[name] if name in gradient else 0
    kept(tmp_path, before, sent())
    assert not all(name in before for name in gradient)
    auditors = Logged(model) if wrapped else model
    same(read_kept(tmp_path).updates[0].update(auditors), gradient, "net." if wrapped else "")
