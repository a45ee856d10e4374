"""The server: one of Flower's strategies, which also keeps what clients send."""

from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx

from leakgauge.integrations.flower import KeepingStrategy
from stockapp import task

app = ServerApp()


class Scaffold(FedAvg):
    """Sends controls under the model's names beside the model, as SCAFFOLD does."""

    def configure_train(self, *given: Any) -> Iterable[Message]:
        """Add controls to each message."""
        for one in super().configure_train(*given):
            controls = {
                k: v * 0 + 7 for k, v in one.content["arrays"].to_torch_state_dict().items()
            }
            one.content["controls"] = ArrayRecord(controls)
            yield one

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Return the mean of the models."""
        received = list(replies)
        for one in received:
            del one.content["controls"]
        return super().aggregate_train(server_round, received)


STRATEGIES = {
    "FedAvg": FedAvg,
    "FedProx": lambda **more: FedProx(proximal_mu=0.5, **more),
    "FedAdam": FedAdam,
    "FedAvgM": lambda **more: FedAvgM(server_momentum=0.9, **more),
    "Scaffold": Scaffold,
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    config = context.run_config
    kind = str(config["kind"])
    strategy = STRATEGIES[str(config["strategy"])](fraction_evaluate=0.0)
    torch.manual_seed(0)
    KeepingStrategy(strategy, "kept-server").start(
        grid=grid,
        initial_arrays=ArrayRecord(task.state_of(kind, task.build(kind))),
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
    )
