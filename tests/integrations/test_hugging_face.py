"""The real Trainer of transformers with a monitor."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of transformers, when it is imported
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

from leakgauge import InputError, Monitor
from leakgauge.integrations.hugging_face import HuggingFaceMonitor

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
]

CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=8,
    num_labels=2,
)


@pytest.fixture(autouse=True)
def _few_objects() -> Iterator[None]:
    """Let accelerate's collections of garbage leave out what earlier tests have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


def records() -> list[dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(0)
    return [
        {"input_ids": torch.randint(30, (6,), generator=rng), "labels": torch.tensor(i % 2)}
        for i in range(48)
    ]


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made: nn.Module = BertForSequenceClassification(CONFIG)
        return made


def trainer(folder: Path, of: nn.Module, *callbacks: Any, **settings: Any) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=6,
        num_train_epochs=1,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
        **settings,
    )
    return Trainer(
        model=of, args=arguments, train_dataset=records(), callbacks=list(callbacks) or None
    )


def weights(of: nn.Module) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in of.parameters()]


def test_training_is_watched_and_weights_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, watched = model(), model()
    trainer(tmp_path, plain).train()
    monitor = Monitor(watched, every=3, checkpoints=0)
    trainer(tmp_path, watched, HuggingFaceMonitor(monitor)).train()
    assert monitor.next_step == 8
    assert [one["step"] for one in monitor.records] == [0, 3, 6]
    assert all("leaves out layers" in one for one in monitor.notes)
    assert all(map(torch.equal, weights(plain), weights(watched)))
    assert not any(len(one._forward_hooks) for one in watched.modules())


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    watched = model()
    monitor = Monitor(watched, every=1, checkpoints=0)
    trainer(tmp_path, watched, HuggingFaceMonitor(monitor), gradient_accumulation_steps=2).train()
    assert monitor.next_step == 4
    assert len(monitor.records) == 4


def test_gradients_are_seen_as_clipped(tmp_path: Path) -> None:
    watched = model()
    monitor = Monitor(watched, every=100, checkpoints=[10**6], gather=1)
    with monitor:
        trainer(tmp_path, watched, HuggingFaceMonitor(monitor), max_grad_norm=1e-3).train()
        kept = monitor._estimates._kept_gradients.rows()
    assert len(kept) == 8
    assert float(monitor._observer.reading.split(kept)["classifier"].norm(dim=1).max()) < 1.1e-3


def test_an_error_ends_a_monitor_around_the_training(tmp_path: Path) -> None:
    watched = model()
    monitor = Monitor(watched, every=1, checkpoints=0)
    watched.register_forward_hook(lambda *given: (_ for _ in ()).throw(RuntimeError("of the user")))
    with pytest.raises(RuntimeError, match="of the user"), monitor:
        trainer(tmp_path, watched, HuggingFaceMonitor(monitor)).train()
    assert not monitor.is_open


@pytest.mark.parametrize("name", ["deepspeed", "fsdp"])
def test_sharded_training_is_refused(name: str) -> None:
    monitor = Monitor(model(), checkpoints=0)
    arguments = SimpleNamespace(deepspeed=None, fsdp=None)
    setattr(arguments, name, {"stage": 3} if name == "deepspeed" else "full_shard")
    with pytest.raises(InputError, match=f"the Trainer uses {name}") as refusal:
        HuggingFaceMonitor(monitor).on_train_begin(arguments, None, None)
    assert "\n" not in str(refusal.value)
    assert not monitor.is_open
