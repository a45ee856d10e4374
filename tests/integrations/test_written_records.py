"""Trainers whose model writes its records in place are watched as those whose model copies them."""

import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries, when they are imported
    import lightning
    from opacus import PrivacyEngine
    from transformers import Trainer, TrainingArguments

from leakgauge import Monitor
from leakgauge.integrations.hugging_face import HuggingFaceMonitor
from leakgauge.integrations.lightning import LightningMonitor
from leakgauge.integrations.opacus import watching
from support.opacus_warnings import QUIET

pytestmark = [
    *QUIET,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*num_workers.*"),
    pytest.mark.filterwarnings("ignore:.*training batches.*"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    pytest.mark.filterwarnings("ignore:.*litlogger.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]

BATCH = 8


class Net(nn.Module):
    """Centres each record, in place or on a copy."""

    def __init__(self, *, careful: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 2)
        self.careful = careful

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        if self.careful:
            x = x.clone()
        x.sub_(x.mean(1, keepdim=True)).mul_(x.abs().mean(1, keepdim=True) + 1)
        found = self.head(functional.relu(self.body(x)))
        return found if labels is None else {"loss": functional.cross_entropy(found, labels)}


def records() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(48, 6, generator=generator) + 2
    return x, (x[:, 0] > 2).long()


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(*records()), batch_size=BATCH)


Watch = Callable[[nn.Module], Monitor]


def by_hand(net: Net, watch: Watch, folder: Path) -> Monitor:
    optimizer, monitor = torch.optim.SGD(net.parameters(), lr=0.1), watch(net)
    with monitor:
        for x, y in loader():
            monitor.step(x, y)
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return monitor


class Module(lightning.LightningModule):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: list[Tensor], number: int) -> Tensor:
        return functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def by_lightning(net: Net, watch: Watch, folder: Path, *, inner: bool = True) -> Monitor:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    module = Module(net)
    monitor = watch(net if inner else module)
    lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[LightningMonitor(monitor)],
    ).fit(module, loader())
    return monitor


def by_lightning_module(net: Net, watch: Watch, folder: Path) -> Monitor:
    return by_lightning(net, watch, folder, inner=False)


def by_hugging_face(net: Net, watch: Watch, folder: Path) -> Monitor:
    monitor = watch(net)
    arguments = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=BATCH, num_train_epochs=1,
        report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
        seed=0,
    )  # fmt: skip
    each = [{"x": x, "labels": y} for x, y in zip(*records(), strict=True)]
    callbacks = [HuggingFaceMonitor(monitor)]
    with monitor:
        Trainer(model=net, args=arguments, train_dataset=each, callbacks=callbacks).train()
    return monitor


def by_opacus(net: Net, watch: Watch, folder: Path) -> Monitor:
    torch.manual_seed(0)
    model, optimizer, batches = PrivacyEngine().make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=loader(),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        poisson_sampling=False,
    )
    monitor = watch(model)
    with watching(optimizer, monitor):
        for x, y in batches:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return monitor


TRAINERS = [by_hand, by_lightning, by_lightning_module, by_hugging_face, by_opacus]


@pytest.mark.parametrize("train", TRAINERS)
def test_the_measures_are_those_of_a_model_that_copies(train: Callable, tmp_path: Path) -> None:
    found = []
    for careful in (True, False):
        net = Net(careful=careful)
        monitor = train(net, lambda model: Monitor(model, every=2, checkpoints=0), tmp_path)
        assert monitor.notes == []
        found.append((monitor.records, [leaf.detach().clone() for leaf in net.parameters()]))
    (measured, weights), (others, changed) = found
    assert len(measured) == 3
    assert all(map(torch.equal, weights, changed))
    assert others == measured
