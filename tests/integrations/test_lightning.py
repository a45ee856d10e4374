"""Lightning's real Trainer with a monitor: gradients before clipping, and the same weights."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from support.loops import batches, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # lightning's own, when it is imported
    import lightning

from leakgauge import Monitor
from leakgauge.integrations.lightning import LightningMonitor

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*num_workers.*"),
    pytest.mark.filterwarnings("ignore:.*training batches.*"),
    pytest.mark.filterwarnings("ignore:.*litlogger.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


class Module(lightning.LightningModule):
    def __init__(self, *, fails_at: int = -1) -> None:
        super().__init__()
        self.net = network()
        self.fails_at = fails_at
        self.norms: list[float] = []

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        if number == self.fails_at:
            raise RuntimeError("of the user")
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader() -> DataLoader[Any]:
    ((x, y),) = batches(1, size=96)
    return DataLoader(TensorDataset(x, y), batch_size=8)


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
        **settings,
    )


def weights(model: nn.Module) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in model.parameters()]


@pytest.mark.parametrize("inner", [True, False])
def test_fit_is_watched_and_weights_are_the_same(tmp_path: Path, inner: bool) -> None:
    plain, module = Module(), Module()
    trainer(tmp_path).fit(plain, loader())
    monitor = Monitor(module.net if inner else module, every=4, checkpoints=0)
    trainer(tmp_path, LightningMonitor(monitor)).fit(module, loader())
    assert monitor.next_step == 12
    assert [one["step"] for one in monitor.records] == [0, 4, 8]
    assert monitor.notes == []
    assert all(map(torch.equal, weights(plain), weights(module)))
    assert not any(len(one._forward_hooks) for one in module.modules())


def test_gradients_are_seen_before_lightning_clips_them(tmp_path: Path) -> None:
    module = Module()
    monitor = Monitor(module, every=100, checkpoints=[10**6], gather=1)
    seen: list[Tensor] = []

    class After(lightning.Callback):
        def on_train_batch_end(self, *given: Any, **named: Any) -> None:
            seen.append(torch.cat([leaf.grad.flatten() for leaf in module.parameters()]))

        def on_train_end(self, *given: Any) -> None:
            kept = monitor._estimates._kept_gradients.rows()
            assert len(kept) == 12
            self.sizes = monitor._observer.reading.split(kept)["net.5"].norm(dim=1)

    after = After()
    trainer(tmp_path, LightningMonitor(monitor), after, gradient_clip_val=1e-3).fit(
        module, loader()
    )
    assert max(float(one.norm()) for one in seen) < 1.1e-3
    assert float(after.sizes.min()) > 1e-2


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    module = Module()
    monitor = Monitor(module, every=1, checkpoints=0)
    trainer(tmp_path, LightningMonitor(monitor), accumulate_grad_batches=3).fit(module, loader())
    assert monitor.next_step == 4
    assert len(monitor.records) == 4


def test_an_error_in_fit_leaves_no_hook(tmp_path: Path) -> None:
    module = Module(fails_at=5)
    monitor = Monitor(module, every=2, checkpoints=0)
    with pytest.raises(RuntimeError, match="of the user"):
        trainer(tmp_path, LightningMonitor(monitor)).fit(module, loader())
    assert not monitor.is_open
    assert not any(len(one._forward_hooks) for one in module.modules())
    assert [one["step"] for one in monitor.records] == [0, 2, 4]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_mixed_precision_is_measured_near_single_precision(tmp_path: Path, precision: str) -> None:
    found = []
    for own in ("32-true", precision):
        torch.manual_seed(0)
        module = Module()
        monitor = Monitor(module, every=1, checkpoints=0)
        trainer(tmp_path, LightningMonitor(monitor), precision=own).fit(module, loader())
        assert not monitor.notes
        found.append(monitor.records[0]["cheap"])
    assert found[1] == pytest.approx(found[0], abs=0.0625)
