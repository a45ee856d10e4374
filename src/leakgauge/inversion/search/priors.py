"""Prior knowledge of the records: images are smooth."""

from torch import Tensor

from leakgauge.core.checks import require


def total_variation(x: Tensor) -> Tensor:
    """Return the mean absolute difference of neighbouring pixels, down plus across (anisotropic).

    Args:
        x: images ``[N, ..., height, width]``, with at least two pixels each way.

    Returns:
        One number for each of N, ``[N]``, in units of a pixel.

    Raises:
        InputError: the records are no images.

    References:
        Geiping et al., Inverting Gradients, NeurIPS 2020.

    >>> import torch
    >>> total_variation(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]))
    tensor([1.])
    """
    require(
        x.dim() >= 3 and min(x.shape[-2:]) >= 2,
        f"total variation needs images [..., height, width], records have {list(x.shape[1:])}; "
        "set total_variation to 0",
    )
    down = (x[..., 1:, :] - x[..., :-1, :]).abs()
    across = (x[..., 1:] - x[..., :-1]).abs()
    return down.flatten(1).mean(1) + across.flatten(1).mean(1)
