"""Run the app with three clients in this process, without Ray: ``python in_process.py``."""

import random
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

CLIENTS = 3


class InProcess(Grid):
    """A grid with client apps of this process as nodes, which answer in sequence."""

    def __init__(self, app: ClientApp, clients: int, run_config: dict[str, Any]) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._app = app
        self._contexts = {
            1000 + number: Context(
                run_id=1,
                node_id=1000 + number,
                node_config={"partition-id": number, "num-partitions": clients},
                state=RecordDict(),
                run_config=run_config,
            )
            for number in range(clients)
        }
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        """Return the nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let clients answer, and return the names of their answers."""
        names = []
        for message in messages:
            names.append(str(len(self._replies)))
            message.metadata.__dict__["_message_id"] = names[-1]
            context = self._contexts[message.metadata.dst_node_id]
            self._replies[names[-1]] = self._app(message, context)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return answers."""
        return [self._replies[name] for name in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return the answers of the messages' nodes."""
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None) -> Message:
        """Return a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def set_run(self, run: Any) -> None:
        """Do nothing, because there is only one run."""

    @property
    def run(self) -> Any:
        """Return None: the run has no description."""
        return None


def main() -> None:
    """Run the rounds of ``pyproject.toml``."""
    from digitsapp import client_app, server_app

    settings = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text("utf-8"))
    config = settings["tool"]["flwr"]["app"]["config"]
    random.seed(0)
    torch.manual_seed(0)
    grid = InProcess(client_app.app, CLIENTS, config)
    server_app.app(grid, Context(1, 1, {}, RecordDict(), config))


if __name__ == "__main__":
    main()
