"""Privacy tokens: networks that turn the gradients of layers into one short vector."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import require_choice
from leakgauge.tokens.words import AUTOENCODER, TOKENS, TRANSFORMER

HIDDEN, LATENT = 512, 128
"""Widths of the autoencoder; the paper's are unknown."""

WIDTH, HEADS, FORWARD, DROPOUT = 512, 8, 2048, 0.1
"""Of the transformer, as in appendix A."""


class Autoencoder(nn.Module):
    """Two layers to a short vector, the token, and two layers back.

    Args:
        sizes: lengths of the layers' gradients.
        hidden: width of the layer between.
        latent: length of the token.
        relu_output: end with a ReLU, as in the paper; it cannot rebuild negative values, so the
            default is linear.

    References:
        Privacy Tokens, section 3.2 and appendix A.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        hidden: int = HIDDEN,
        latent: int = LATENT,
        relu_output: bool = False,
    ) -> None:
        super().__init__()
        self.length = latent
        whole = sum(sizes)
        self.encoder = nn.Sequential(
            nn.Linear(whole, hidden), nn.LeakyReLU(), nn.Linear(hidden, latent), nn.LeakyReLU()
        )
        last: list[nn.Module] = [nn.ReLU()] if relu_output else []
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.LeakyReLU(), nn.Linear(hidden, whole), *last
        )

    def forward(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tokens ``[N, latent]`` and the mean squared error of the rebuilt gradients.

        The error is part of the objective; in eval mode nothing is rebuilt, and it is 0.
        """
        whole = torch.cat(list(gradients.values()), dim=1)
        token = self.encoder(whole)
        if not self.training:
            return token, token.new_zeros(())
        return token, functional.mse_loss(self.decoder(token), whole)


class GradientTransformer(nn.Module):
    """A linear map of each layer's gradient to 512 numbers, and one transformer layer over layers.

    The token is the outputs of all layers side by side.

    Args:
        sizes: lengths of the layers' gradients.

    References:
        Privacy Tokens, section 3.2 and appendix A.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.length = WIDTH * len(sizes)
        self.maps = nn.ModuleList(nn.Linear(size, WIDTH) for size in sizes)
        self.mixer = nn.TransformerEncoderLayer(WIDTH, HEADS, FORWARD, DROPOUT, batch_first=True)

    def forward(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tokens ``[N, 512 L]``, and 0: nothing is rebuilt."""
        mapped = [one(leaf) for one, leaf in zip(self.maps, gradients.values(), strict=True)]
        token = self.mixer(torch.stack(mapped, dim=1)).flatten(1)
        return token, token.new_zeros(())


class Flat(nn.Module):
    """No network: the token is the gradients themselves, side by side."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.length = sum(sizes)

    def forward(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tokens ``[N, p]``, and 0."""
        token = torch.cat(list(gradients.values()), dim=1)
        return token, token.new_zeros(())


FLAT = "flat"
"""The token of vectors that need no encoder."""


def encoder(token: str, sizes: Sequence[int], *, relu_output: bool = False) -> nn.Module:
    """Return a new encoder; torch's global generator draws its weights.

    Args:
        token: its name.
        sizes: lengths of the layers' gradients.
        relu_output: of the autoencoder.

    Raises:
        InputError: no token has this name.
    """
    require_choice(token, "token", (*TOKENS, FLAT))
    if token == AUTOENCODER:
        return Autoencoder(sizes, relu_output=relu_output)
    return GradientTransformer(sizes) if token == TRANSFORMER else Flat(sizes)
