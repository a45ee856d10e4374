"""The gradients of batches that a client sends, after the defense."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from leakgauge.core.rng import derive, torch_stream
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.defenses import Defense
from leakgauge.training.per_record import iter_gradients


def sent_gradients(
    task: Task,
    params: Params,
    data: Dataset,
    rows: Tensor,
    *,
    defense: Defense,
    noise_seed: int,
    max_bytes: int,
    secret: Tensor | None = None,
    only: Tensor | None = None,
) -> Iterator[Grads]:
    """Yield the defended gradients of batches, chunk by chunk in order.

    Args:
        task: the model and its loss.
        params: the parameters of the round.
        data: the pool that the batches are drawn from.
        rows: ``[n, B]`` positions in it.
        defense: changes the gradient before the client sends it.
        noise_seed: determines, with ``rows``, the defense's randomness in this round; each batch
            has its own generator, so the result does not depend on the chunks.
        max_bytes: bound on the gradients held at once.
        secret: of each batch ``[n]``, for a defense that uses it.
        only: positions in ``rows`` ``[k]`` of the batches to compute, with the same noise as among
            all; None for all of them.

    Yields:
        Leaves ``[chunk, *p]``.
    """
    positions = torch.arange(len(rows), device=rows.device) if only is None else only
    drawn = hashlib.sha256(rows.cpu().numpy().tobytes()).hexdigest()

    def of_records(position: int) -> list[torch.Generator]:
        seed = derive(noise_seed, drawn, int(positions[position]), "record")
        return [torch_stream(seed, one, device=data.x.device) for one in range(rows.shape[1])]

    chunks = iter_gradients(
        task,
        params,
        data,
        rows[positions],
        per_example=defense.per_example,
        rngs=of_records,
        max_bytes=max_bytes,
    )
    for trials, grads in chunks:
        device = next(iter(grads.values())).device
        generators = [
            torch.Generator(device).manual_seed(derive(noise_seed, drawn, number))
            for number in positions[trials].tolist()
        ]
        informed = defense
        if secret is not None:
            informed = defense.knowing(secret.to(device)[positions[trials].to(device)])
        yield informed.update(grads, generators)
