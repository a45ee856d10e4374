"""What leaves a client: the gradients of batches, after the defense."""

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
    """The defended gradients of batches, chunk by chunk in order.

    Args:
        task: the model and its loss.
        params: the parameters of the round.
        data: the pool that the batches are drawn from.
        rows: ``[n, B]`` positions in it.
        defense: what the client does to its gradient before it sends.
        noise_seed: the defense's randomness in this round follows from it and from ``rows``; each
            batch has a generator of its own, so chunks do not matter.
        max_bytes: bound on the gradients held at once.
        secret: of each batch ``[n]``, for a defense that makes use of it.
        only: positions in ``rows`` ``[k]`` of the batches that are wanted, sent as they are among
            all; None: all of them.

    Yields:
        Leaves ``[chunk, *p]``.
    """
    wanted = torch.arange(len(rows), device=rows.device) if only is None else only
    drawn = hashlib.sha256(rows.cpu().numpy().tobytes()).hexdigest()

    def of_records(position: int) -> list[torch.Generator]:
        seed = derive(noise_seed, drawn, int(wanted[position]), "record")
        return [torch_stream(seed, one, device=data.x.device) for one in range(rows.shape[1])]

    chunks = iter_gradients(
        task,
        params,
        data,
        rows[wanted],
        per_example=defense.per_example,
        rngs=of_records,
        max_bytes=max_bytes,
    )
    for trials, grads in chunks:
        device = next(iter(grads.values())).device
        generators = [
            torch.Generator(device).manual_seed(derive(noise_seed, drawn, number))
            for number in wanted[trials].tolist()
        ]
        knowing = defense
        if secret is not None:
            knowing = defense.knowing(secret.to(device)[wanted[trials].to(device)])
        yield knowing.update(grads, generators)
