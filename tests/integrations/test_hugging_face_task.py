"""Tasks of models of transformers, and an audit of adapters."""

import sys
import warnings

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of transformers, when it is imported
    from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import leakgauge as lg
from leakgauge import InputError
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.integrations.hugging_face_task import adapted, causal_task, classification_task

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

MARKER = 7


def bert() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=16, max_position_embeddings=8, num_labels=2,
        )  # fmt: skip
        return BertForSequenceClassification(config).eval()


def gpt() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(
            n_layer=2, n_embd=16, n_head=2, vocab_size=40, n_positions=8, bos_token_id=0,
            eos_token_id=0, tie_word_embeddings=False,
        )  # fmt: skip
        return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_gradients_are_those_of_transformers_own_loss(method: str) -> None:
    x = torch.randint(1, 40, (3, 6), generator=torch.Generator().manual_seed(0))
    x[1, 4:] = 0
    for model, task, y in (
        (one := gpt(), causal_task(one, padding=0), torch.where(x == 0, -100, x)),
        (two := bert(), classification_task(two, padding=0), torch.tensor([0, 1, 1])),
    ):
        if method == "vmap" and model is two:
            continue  # its mask depends on the data
        found = per_example_gradients(task, params_of(task.model), x, y, method=method)
        for row in range(3):
            model.zero_grad()
            mask = (x[row : row + 1] != 0).long()
            model(x[row : row + 1], attention_mask=mask, labels=y[row : row + 1]).loss.backward()
            for name, leaf in model.named_parameters():
                if leaf.grad is not None:
                    assert torch.allclose(found[f"net.{name}"][row], leaf.grad, atol=1e-6), name


def test_adapters_alone_are_trained_and_the_model_stays() -> None:
    model = bert()
    own = adapted(model, rank=2)
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert all(leaf.requires_grad for leaf in model.parameters())
    trained = [name for name, leaf in own.named_parameters() if leaf.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert not own.training


def test_wrong_models_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="expected one of transformers"):
        causal_task(nn.Linear(2, 2))
    with pytest.raises(InputError, match="has no output layer over tokens"):
        causal_task(bert())
    with pytest.raises(InputError, match="set targets") as refusal:
        adapted(bert(), targets=["nothing"])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("package", ["transformers", "peft"])
def test_a_missing_extra_is_named_with_its_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bert()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as refusal:
        adapted(model)
    assert str(refusal.value) == (
        f"{package} is not installed; install it with: pip install 'leakgauge[hf]'"
    )


def audited(*, planted: bool, seed: int, adversary: str) -> float:
    """AUROC of the property that the marker shows, or of one that nothing shows."""
    rng = torch.Generator().manual_seed(seed)
    n = 900
    x = torch.randint(8, 40, (n, 6), generator=rng)
    y, secret = (torch.randint(2, (n,), generator=rng) for _ in range(2))
    x[:, 0] = torch.where(y > 0, 1, 2)
    if planted:
        x[:, 3] = torch.where(secret > 0, MARKER, x[:, 3])
    data = lg.from_arrays(x, y, {"marked": secret}, dtype=torch.int64)
    task = classification_task(adapted(bert(), rank=2))
    settings = {"rounds": 1, "trials": 200, "batch_size": 16, "adversaries": [adversary]}
    result = lg.audit(lg.load(task, data), "property", seed=seed, **settings)
    return next(
        one.estimate.value
        for one in result.measurements
        if (one.metric, one.adversary) == ("auroc", adversary)
    )


ADVERSARIES = ["logistic", pytest.param("panel", marks=pytest.mark.slow)]


@pytest.mark.calibration
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_property_of_the_texts_shows_in_the_adapters(adversary: str) -> None:
    assert audited(planted=True, seed=0, adversary=adversary) > 0.9


@pytest.mark.calibration
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_no_property_gives_chance(adversary: str) -> None:
    assert audited(planted=False, seed=0, adversary=adversary) == pytest.approx(0.5, abs=0.15)
