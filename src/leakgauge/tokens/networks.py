"""Networks of an estimate: encoders of gradients (privacy tokens), and critics."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge.core.checks import require_choice
from leakgauge.tokens.words import AUTOENCODER, CONCAT, CRITICS, SEPARABLE, TOKENS, TRANSFORMER

HIDDEN, LATENT = 512, 128
"""Widths of the autoencoder; the paper names none."""

WIDTH, HEADS, FORWARD, DROPOUT = 512, 8, 2048, 0.1
"""Sizes of the transformer, as in appendix A."""


class Autoencoder(nn.Module):
    """Encodes gradients in a short vector, the token, by two layers, and decodes it by two more.

    Args:
        sizes: lengths of the layers' gradients.
        hidden: width of the hidden layers.
        latent: length of the token.
        relu_output: whether to end with a ReLU, as in the paper; it cannot rebuild negative
            values, so the default is linear.

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

        The error is part of the objective; it is 0 in eval mode, which does not rebuild.
        """
        whole = torch.cat(list(gradients.values()), dim=1)
        token = self.encoder(whole)
        if not self.training:
            return token, token.new_zeros(())
        return token, functional.mse_loss(self.decoder(token), whole)


class GradientTransformer(nn.Module):
    """Maps each layer's gradient to 512 numbers, and mixes layers by one transformer layer.

    The token concatenates the outputs of all layers.

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
        """Return the tokens ``[N, 512 L]``, and 0."""
        mapped = [one(leaf) for one, leaf in zip(self.maps, gradients.values(), strict=True)]
        token = self.mixer(torch.stack(mapped, dim=1)).flatten(1)
        return token, token.new_zeros(())


class FlatToken(nn.Module):
    """Concatenates the gradients, without a network."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.length = sum(sizes)

    def forward(self, gradients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the tokens ``[N, p]``, and 0."""
        token = torch.cat(list(gradients.values()), dim=1)
        return token, token.new_zeros(())


FLAT = "flat"
"""Name of the token for vectors without an encoder."""


def encoder(token: str, sizes: Sequence[int], *, relu_output: bool = False) -> nn.Module:
    """Return a new encoder; torch's global generator draws its weights.

    Args:
        token: name of the token.
        sizes: lengths of the layers' gradients.
        relu_output: whether the autoencoder ends with a ReLU.

    Raises:
        InputError: the name is unknown.
    """
    require_choice(token, "token", (*TOKENS, FLAT))
    if token == AUTOENCODER:
        return Autoencoder(sizes, relu_output=relu_output)
    return GradientTransformer(sizes) if token == TRANSFORMER else FlatToken(sizes)


CRITIC_HIDDEN, EMBEDDED = 256, 128
"""Widths of the two embedding layers; the paper names 128."""


class Critic(nn.Module):
    """Embeds features and tokens in 128 numbers each, and scores every pair of them.

    Both kinds start as a constant, so their first value is that of a critic without knowledge.

    Args:
        features: length of the data features.
        token: length of the tokens.
        kind: ``"concat"``, the paper's: two layers on both embeddings; or ``"separable"``, which
            learns from fewer pairs: the inner product of embeddings, each the sum of two layers and
            a linear path.
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
    """Two fully connected layers on two concatenated embeddings.

    The first layer is linear in both, so each embedding passes it once, not once per pair.
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
    """The inner product of two embeddings, times a learnt scale that starts at 0."""

    GROWTH = 10.0
    """Factor that makes the scale learn as fast as the other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the scores ``[K, M]``."""
        return self.GROWTH / math.sqrt(EMBEDDED) * self.scale * (left @ right.T)


class Embedding(nn.Module):
    """The sum of two layers and a linear path, as much of the information is linear."""

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
