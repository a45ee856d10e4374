"""The client: that of Flower's PyTorch quickstart, except for the line with ``mods``."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digitsapp.task import Net, load_data
from digitsapp.task import test as test_fn
from digitsapp.task import train as train_fn
from leakgauge.integrations.flower import KeepUpdates

app = ClientApp(mods=[KeepUpdates("kept")])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the received model on the client's records."""
    model, device = received(msg)
    loader, _ = loaders(context)
    epochs = context.run_config["local-epochs"]
    loss = train_fn(model, loader, epochs, msg.content["config"]["lr"], device)
    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test the received model on the client's records."""
    model, device = received(msg)
    _, loader = loaders(context)
    loss, accuracy = test_fn(model, loader, device)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def received(msg: Message) -> tuple[Net, torch.device]:
    """Return the network with the weights of a message, on its device."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    return model.to(device), device


def loaders(context: Context):
    """Return the client's loaders for training and for testing."""
    node, batch_size = context.node_config, context.run_config["batch-size"]
    return load_data(node["partition-id"], node["num-partitions"], batch_size)
