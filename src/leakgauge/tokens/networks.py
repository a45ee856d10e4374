"""Privacy tokens: networks that turn the gradients of layers into one short vector."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import require_choice
from leakgauge.tokens.words import AUTOENCODER, CONCAT, CRITICS, SEPARABLE, TOKENS, TRANSFORMER

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


class FlatToken(nn.Module):
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
    return GradientTransformer(sizes) if token == TRANSFORMER else FlatToken(sizes)


CRITIC_HIDDEN, EMBEDDED = 256, 128
"""Widths of the two layers that embed features and tokens; the paper names 128."""


class Critic(nn.Module):
    """Embeds features and tokens in 128 numbers each, and scores every pair of them.

    Both kinds begin constant, so their first value is that of an ignorant critic.

    Args:
        features: length of the data features.
        token: length of the tokens.
        kind: ``"concat"``, the paper's: two layers on both embeddings side by side; or
            ``"separable"``: the inner product of embeddings that have a linear path beside their
            two layers. It learns from fewer pairs.
        start: the constant.

    References:
        Privacy Tokens, appendix A.
    """

    def __init__(self, features: int, token: int, *, kind: str = SEPARABLE, start: float) -> None:
        super().__init__()
        require_choice(kind, "critic", CRITICS)
        embed = _embedding if kind == CONCAT else Embedding
        self.of_features = embed(features)
        self.of_tokens = embed(token)
        self.constant = nn.Parameter(torch.tensor(float(start)))
        self.head = Concat() if kind == CONCAT else Product()

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Return the scores ``[K, M]`` of ``features [K, d]`` against ``tokens [M, t]``."""
        scores: Tensor = self.head(self.of_features(features), self.of_tokens(tokens))
        return scores + self.constant


class Concat(nn.Module):
    """Two fully connected layers on two embeddings side by side.

    The first layer is linear in both, so each embedding passes it once, not once a pair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(EMBEDDED, EMBEDDED)
        self.right = nn.Linear(EMBEDDED, EMBEDDED, bias=False)
        self.last = nn.Linear(EMBEDDED, 1, bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores ``[K, M]``."""
        hidden = torch.relu(self.left(left)[:, None] + self.right(right)[None])
        scores: Tensor = self.last(hidden)
        return scores.squeeze(-1)


class Product(nn.Module):
    """The inner product of two embeddings, times a learnt scale that begins at 0."""

    GROWTH = 10.0
    """Makes the scale learn as fast as the other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores ``[K, M]``."""
        return self.GROWTH / math.sqrt(EMBEDDED) * self.scale * (left @ right.T)


class Embedding(nn.Module):
    """Two layers, and a linear path beside them: much of what gradients tell is linear."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.line, self.layers = nn.Linear(size, EMBEDDED), _embedding(size)

    def forward(self, values: Tensor) -> Tensor:
        """Return the embedded ``values [N, size]``, ``[N, 128]``."""
        embedded: Tensor = self.line(values) + self.layers(values)
        return embedded


def _embedding(size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, CRITIC_HIDDEN), nn.ReLU(), nn.Linear(CRITIC_HIDDEN, EMBEDDED)
    )
