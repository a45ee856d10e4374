"""Networks, records and one step of training, by kind of app."""

import logging
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CLIENTS, PER_CLIENT, PUBLIC, CLASSES, FEATURES = 2, 24, 60, 3, 60


def records(kind: str, owner: int) -> tuple[Tensor, Tensor]:
    """Return the records of a client; those that no client has for owner -1."""
    count = PUBLIC if owner < 0 else PER_CLIENT
    generator = torch.Generator().manual_seed(owner + 10)
    y = torch.randint(CLASSES, (count,), generator=generator)
    if kind == "lora":
        return torch.randint(1, 40, (count, 6), generator=generator), y
    return torch.randn(count, FEATURES, generator=generator), y


def lightning_module() -> nn.Module:
    """Return a module for Lightning's Trainer, which holds the network as ``model``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lightning

    class Lit(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = network()
            self.rate = 0.1

        def training_step(self, batch: list[Tensor], number: int) -> Tensor:
            return functional.cross_entropy(self.model(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=self.rate)

    return Lit()


def lora() -> nn.Module:
    """Return a small language model that classifies, with adapters and a head to train."""
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import GPT2Config, GPT2ForSequenceClassification

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=40, n_positions=8, n_embd=8, n_layer=1, n_head=2, num_labels=CLASSES,
        pad_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    adapters = LoraConfig(
        task_type=TaskType.SEQ_CLS, r=2, lora_alpha=4, lora_dropout=0.0, target_modules=["c_attn"],
        fan_in_fan_out=True,
    )  # fmt: skip
    net = get_peft_model(GPT2ForSequenceClassification(config), adapters)
    with torch.no_grad():  # at zero, the second half of an adapter hides the first one's gradient
        for name, leaf in net.named_parameters():
            if "lora_B" in name:
                leaf.normal_(std=0.1)
    return net


def network() -> nn.Module:
    """Return a small network with running statistics."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, CLASSES)
    )


def build(kind: str) -> nn.Module:
    """Return the network of a kind of app."""
    return {"torch": network, "lightning": lightning_module, "lora": lora}[kind]()


def state_of(kind: str, net: nn.Module) -> dict[str, Tensor]:
    """Return what a client sends."""
    if kind != "lora":
        return net.state_dict()
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(net)


def load(kind: str, net: nn.Module, state: dict[str, Tensor]) -> None:
    """Set the weights that came."""
    if kind != "lora":
        net.load_state_dict(state)
        return
    from peft import set_peft_model_state_dict

    set_peft_model_state_dict(net, state)


def loss_of(kind: str, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of a batch."""
    if kind == "lora":
        return net(input_ids=x, labels=y).loss
    return functional.cross_entropy((net.model if kind == "lightning" else net)(x), y)


def train(kind: str, net: nn.Module, x: Tensor, y: Tensor, lr: float, mu: float = 0.0) -> None:
    """Train one epoch in one batch, which is one step of SGD."""
    net.train()
    if kind == "lightning":
        _fit(net, x, y, lr)
        return
    start = [leaf.detach().clone() for leaf in net.parameters()]
    optimizer = torch.optim.SGD([leaf for leaf in net.parameters() if leaf.requires_grad], lr=lr)
    optimizer.zero_grad()
    loss = loss_of(kind, net, x, y)
    for leaf, before in zip(net.parameters(), start, strict=True):
        loss = loss + mu / 2 * (leaf - before).pow(2).sum()
    loss.backward()
    optimizer.step()


def _fit(net: Any, x: Tensor, y: Tensor, lr: float) -> None:
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    net.rate = lr
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        ).fit(net, DataLoader(TensorDataset(x, y), batch_size=len(x)))  # fmt: skip
