"""What an active server is: its knowledge, its traits, and the model that it sends."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor

from leakgauge.core.types import Task


@dataclass(frozen=True)
class ServerTraits:
    """What a server does to the model, and the attack that reads the updates.

    Attributes:
        does: what it does, as the end of a sentence that begins with its name.
        method: the attack that was made for its models, one of ``methods.METHODS``.
    """

    does: str
    method: str


@dataclass(frozen=True, eq=False)
class ServerKnowledge:
    """What a server knows before any client answers.

    Attributes:
        x: public records ``[n, ...]``, in units of the model's input.
        y: their labels ``[n]``.
        low: lowest values of a record, broadcast to it.
        high: highest values of a record, broadcast to it.
        records: number of records behind one update, or one sum of updates.
    """

    x: Tensor
    y: Tensor
    low: Tensor
    high: Tensor
    records: int


class Server(ABC):
    """A server that alters the model: weights, or layers, but never the clients' protocol.

    A subclass says by ``traits`` what it does, and implements ``alter``. It knows no private
    record.
    """

    traits: ClassVar[ServerTraits]

    @abstractmethod
    def alter(self, task: Task, known: ServerKnowledge, generator: Generator) -> Task:
        """Return the task with the model that the server sends; the given model stays as it is.

        Args:
            task: the honest model and its loss.
            known: public records and the protocol.
            generator: draws weights, on the CPU.

        Raises:
            InputError: the server cannot alter this model.
        """
