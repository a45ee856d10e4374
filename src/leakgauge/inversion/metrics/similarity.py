"""Similarity of rebuilt images to the true ones; for scoring only, no attack uses it.

All images are floating ``[n, c, h, w]``, with pixels from 0 to 1 unless ``peak`` is another number.
"""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import conv2d

from leakgauge.core.checks import require

SSIM_WINDOW = 11
"""Height and width of the window of SSIM, and smallest size of an image, in pixels."""

_SIGMA = 1.5  # pixels, like the window of Wang et al.
_K1, _K2 = 0.01, 0.03


def psnr(images: Tensor, truth: Tensor, peak: float = 1.0) -> Tensor:
    """Return the peak signal-to-noise ratio of each image, in dB.

    An error below the resolution of float32 counts as that resolution: equal images score 138.5 dB,
    not infinity, so that means stay finite.

    Args:
        images: ``[n, ...]``.
        truth: true values of the same shape.
        peak: largest possible value of a pixel; the smallest is 0.

    Returns:
        ``[n]``, float64.

    Raises:
        InputError: the shapes differ, or a value is not finite.

    >>> [round(float(db), 1) for db in psnr(torch.tensor([[0.1], [0.0]]), torch.zeros(2, 1))]
    [20.0, 138.5]
    """
    images, truth = _checked(images, truth)
    error = (images - truth).square().flatten(1).mean(dim=1)
    smallest = (peak * torch.finfo(torch.float32).eps) ** 2
    return 10 * torch.log10(peak**2 / error.clamp(min=smallest))


def ssim(images: Tensor, truth: Tensor, peak: float = 1.0) -> Tensor:
    """Return the structural similarity of each image, mean over channels and inner windows.

    A Gaussian window of 11 x 11 pixels with sigma 1.5, K1 = 0.01 and K2 = 0.03, population
    moments: scikit-image's ``structural_similarity(gaussian_weights=True, sigma=1.5,
    use_sample_covariance=False)``.

    The arguments are those of ``psnr``, images ``[n, c, h, w]`` with h and w at least 11.

    Returns:
        ``[n]``, float64; 1 where the images are equal.

    Raises:
        InputError: the shapes differ or are too small, or a value is not finite.

    References:
        Wang, Bovik, Sheikh and Simoncelli, Image quality assessment: from error visibility to
        structural similarity, IEEE TIP 2004.

    >>> image = torch.linspace(0, 1, 256).view(1, 1, 16, 16)
    >>> ssim(image, image)
    tensor([1.], dtype=torch.float64)
    """
    images, truth = _checked(images, truth)
    require(
        images.dim() == 4 and min(images.shape[2:]) >= SSIM_WINDOW,
        f"images are {list(images.shape)}; SSIM needs [n, c, h, w] with at least {SSIM_WINDOW} "
        "pixels in each direction",
    )
    a, b = _blurred(images), _blurred(truth)
    # The variances and the covariance under each window.
    aa = _blurred(images.square()) - a.square()
    bb = _blurred(truth.square()) - b.square()
    ab = _blurred(images * truth) - a * b
    c1, c2 = (_K1 * peak) ** 2, (_K2 * peak) ** 2
    each = (2 * a * b + c1) * (2 * ab + c2) / ((a**2 + b**2 + c1) * (aa + bb + c2))
    return each.flatten(1).mean(dim=1)


def align_to_truth(images: Tensor, truth: Tensor) -> Tensor:
    """Return the order of the rebuilt records of a batch that is nearest to the true ones.

    A gradient does not hold the order of its batch. This is the assignment with the smallest sum of
    squared errors; for tokens, of differing ones. It uses the truth, so it is for scoring only.

    Returns:
        ``[B]``, int64: ``images[order]`` corresponds to ``truth``, both ``[B, ...]``.

    Raises:
        InputError: the shapes differ, or a value is not finite.

    >>> truth = torch.tensor([[0.0], [1.0], [2.0]])
    >>> align_to_truth(truth[[2, 0, 1]] + 0.1, truth)
    tensor([1, 2, 0])
    """
    are_tokens = not truth.is_floating_point()
    images, truth = (one.flatten(1) for one in _checked(images, truth))
    pairs = truth[:, None] != images if are_tokens else None
    cost = torch.cdist(truth, images).square() if pairs is None else pairs.sum(2)
    _, order = linear_sum_assignment(cost.cpu().numpy())
    return torch.from_numpy(order).to(images.device)


def _checked(images: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in float64, without a graph: squares of near pixels cancel in float32."""
    require(
        images.shape == truth.shape and images.dim() > 1 and images.numel() > 0,
        f"images are {list(images.shape)} and the truth is {list(truth.shape)}; expected the same "
        "shape [n, ...]",
    )
    bad = int((~torch.isfinite(images)).flatten(1).any(dim=1).sum())
    require(bad == 0, f"{bad} of {len(images)} images hold values that are not finite")
    return images.detach().double(), truth.detach().to(images.device).double()


def _blurred(images: Tensor) -> Tensor:
    """Return Gaussian means under the inner windows: ``[n, c, h - 10, w - 10]``."""
    place = torch.arange(SSIM_WINDOW, dtype=images.dtype, device=images.device) - SSIM_WINDOW // 2
    weight = torch.softmax(-(place**2) / (2 * _SIGMA**2), dim=0)
    flat = images.flatten(0, 1)[:, None]
    rows = conv2d(flat, weight.view(1, 1, -1, 1))
    inner = conv2d(rows, weight.view(1, 1, 1, -1))
    return inner.view(*images.shape[:2], *inner.shape[2:])
