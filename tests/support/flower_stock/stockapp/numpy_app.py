"""The old interface: a ``NumPyClient``, and a server with a strategy of ``flwr.server``."""

from typing import Any

import torch
from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from leakgauge.integrations.flower import KeepUpdates
from stockapp import task


class Trainer(NumPyClient):
    """A client whose weights are a list of arrays."""

    def __init__(self, part: int) -> None:
        self.net, self.part = task.network(), part

    def get_parameters(self, config: dict[str, Any]) -> list[Any]:
        """Return the weights as a list."""
        return [leaf.numpy() for leaf in self.net.state_dict().values()]

    def set_parameters(self, arrays: list[Any]) -> None:
        """Set the weights from a list."""
        pairs = zip(self.net.state_dict(), arrays, strict=True)
        self.net.load_state_dict({name: torch.from_numpy(leaf) for name, leaf in pairs})

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, Any]:
        """Train on the client's records."""
        self.set_parameters(parameters)
        x, y = task.records("torch", self.part)
        task.train("torch", self.net, x, y, config["lr"])
        return self.get_parameters({}), len(y), {"loss": 0.5}


def client_fn(context: Context) -> Client:
    """Return the client of a node."""
    return Trainer(int(context.node_config["partition-id"])).to_client()


def server_fn(context: Context) -> ServerAppComponents:
    """Return the server's parts."""
    lr = context.run_config["learning-rate"]
    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_available_clients=task.CLIENTS,
        initial_parameters=ndarrays_to_parameters(Trainer(0).get_parameters({})),
        on_fit_config_fn=lambda number: {"lr": lr},
    )
    rounds = int(context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds))


app = ClientApp(client_fn, mods=[KeepUpdates("kept")])
server = ServerApp(server_fn=server_fn)
