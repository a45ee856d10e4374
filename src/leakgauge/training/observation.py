"""The gradients of batches that a client sends, after the defense."""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from leakgauge.core.rng import derive, torch_stream
from leakgauge.core.types import Dataset, Grads, Params, Task
from leakgauge.defenses import Defense, Transform
from leakgauge.gradients import iter_batch_gradients, per_example_gradients
from leakgauge.gradients.batching import slices
from leakgauge.gradients.clipping import iter_clipped_batch_gradients

RecordGenerators = Callable[[int], Sequence[torch.Generator]]
"""Maps the position of a batch to a generator for each of its records."""


def iter_gradients(
    task: Task,
    params: Params,
    data: Dataset,
    rows: Tensor,
    *,
    per_example: Transform | None,
    rngs: RecordGenerators,
    max_bytes: int,
) -> Iterator[tuple[slice, Grads]]:
    """Yield batch gradients, the means of transformed record gradients.

    Clipping has its own path, which never stores the records' gradients; any other transform
    stores those of at least one batch.

    Args:
        task: the model and its loss.
        params: parameters of the model.
        data: the pool that the batches are drawn from.
        rows: ``[n, B]`` positions in it.
        per_example: the transform of a record's gradient; None for no transform.
        rngs: the transform's randomness.
        max_bytes: bound on the gradients held at once.

    Yields:
        Pairs of a slice of ``rows``, in order, and its gradients, leaf ``[chunk, *p]``.
    """
    x, y = data.x, data.y
    if per_example is None:
        yield from iter_batch_gradients(task, params, x, y, rows, max_bytes=max_bytes)
        return
    clip = per_example.clip_norm
    if clip is not None:
        yield from iter_clipped_batch_gradients(
            task, params, x, y, rows, clip=clip, max_bytes=max_bytes
        )
        return
    of_record = sum(leaf.nbytes for leaf in params.values())
    for chunk in slices(len(rows), max(1, max_bytes // (2 * of_record))):
        means = [
            mean_of_transformed(task, params, x[batch], y[batch], per_example, rngs(one))
            for one, batch in enumerate(rows[chunk], start=chunk.start)
        ]
        yield chunk, {name: torch.stack([mean[name] for mean in means]) for name in means[0]}


def mean_of_transformed(
    task: Task,
    params: Params,
    x: Tensor,
    y: Tensor,
    per_example: Transform,
    rngs: Sequence[torch.Generator],
) -> Grads:
    """Return the mean ``[*p]`` of the transformed gradients of a batch ``x [B, ...]``, ``y``.

    ``rngs`` holds a generator for each record.
    """
    fixed = {name: leaf.detach() for name, leaf in params.items()}
    each = per_example(per_example_gradients(task, fixed, x, y), rngs)
    return {name: leaf.mean(dim=0) for name, leaf in each.items()}


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
        secret: secret of each batch ``[n]``, for a defense that uses it.
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
        if defense.update.is_identity:  # making generators would take as long as the gradients
            yield defense.update(grads, [])
            continue
        device = next(iter(grads.values())).device
        generators = [
            torch.Generator(device).manual_seed(derive(noise_seed, drawn, number))
            for number in positions[trials].tolist()
        ]
        informed = defense
        if secret is not None:
            informed = defense.knowing(secret.to(device)[positions[trials].to(device)])
        yield informed.update(grads, generators)
