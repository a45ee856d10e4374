"""What a defense claims by its own parameters, and the mechanism that it is.

The claim is what its parameters say (``epsilon=10``). The mechanism is what its clipping and its
noise do; ``leakgauge.privacy.promises`` computes what follows from it.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from leakgauge.core.checks import require, require_positive
from leakgauge.core.numbers import rounded_up
from leakgauge.defenses.catalog import REGISTRY, SUPPLIED, parse_defense
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.noise import GaussianNoise
from leakgauge.defenses.transform import Chain
from leakgauge.privacy.estimate import noise_for_epsilon
from leakgauge.privacy.promises import (
    ADD,
    CLIENT,
    RECORD,
    REPLACE,
    GaussianRelease,
    Neighbours,
    SparseRelease,
)

NO_NOISE = "it adds no noise"

WITHOUT = {
    "none": "it changes nothing",
    "clip": "it clips, and adds no noise",
    "fixed-clipping": "it clips and adds no noise: the server, which has then seen the update, "
    "may add some to the mean",
    "adaptive-clipping": "it clips and adds no noise: the server, which has then seen the update, "
    "may add some to the mean",
    "percentile-privacy": "it drops and cuts coordinates, and adds no noise",
    "prune": "it drops coordinates, and adds no noise",
    "sign": "it sends signs, and adds no noise",
    "quantise": "it rounds at random, which is no noise of known size",
    "perturb": "it changes the gradient, and adds no noise",
    "vib": "it adds noise inside the model, not to what is sent",
    "noise": "it adds noise to updates of unlimited norm",
    "dpsgd": NO_NOISE,
}
"""Why a defense without a mechanism has no differential privacy."""

OWN_CODE = "its code does not state that it clips and then adds Gaussian noise"

SERVED = ("fixed-clipping", "adaptive-clipping")
"""The defenses after which a server adds noise to the sum of clients' updates."""

CALLED_PRIVATE = ("dpsgd", "percentile-privacy")
"""The defenses whose names or documents speak of privacy, with or without noise."""


@dataclass(frozen=True)
class Claim:
    """What the parameters of a defense say.

    Attributes:
        epsilon: epsilon of one release.
        delta: its delta; 0 for pure differential privacy.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Statement:
    """A defense as a mechanism.

    Attributes:
        word: name without settings.
        settings: the settings, filled in; None for a function.
        claim: what its parameters say; None where they name no epsilon.
        mechanism: the release that it is; None without differential privacy, and for ``svt``, whose
            mechanism depends on the number of parameters: see ``sparse``.
        why: why there is no differential privacy; empty otherwise.
    """

    word: str
    settings: Any
    claim: Claim | None
    mechanism: GaussianRelease | None
    why: str

    @property
    def is_private(self) -> bool:
        """Whether some epsilon follows from it."""
        return not self.why

    @property
    def usual(self) -> Neighbours:
        """The unit and relation under which such a mechanism is usually stated.

        Those of DP-SGD are a record, added or removed. A client that filters its own update hides
        it among all others that it might send.
        """
        per_record = self.mechanism is not None and self.mechanism.batch is not None
        return Neighbours(RECORD, ADD) if per_record else Neighbours(CLIENT, REPLACE)

    def sparse(self, parameters: int) -> SparseRelease:
        """Return the mechanism of ``svt`` for a model with so many parameters."""
        one = self.settings
        return SparseRelease(parameters, one.fraction, one.epsilon, one.noise)


def with_server_noise(text: str, *, batch_size: int, multiplier: float | None) -> Defense:
    """Return a defense, with the noise that a server adds to the sum of updates.

    Whoever sees the sum and knows the other clients' updates sees one update with this noise. The
    server itself has seen the update without it.

    Args:
        text: as ``parse_defense`` reads it.
        batch_size: records of a batch.
        multiplier: standard deviation of the noise on the sum, over the clipping norm (Flower's
            ``noise_multiplier``); None for a server that adds none.

    Raises:
        InputError: no server adds noise after this defense, or the multiplier is not above 0.

    >>> text = "fixed-clipping:norm=2"
    >>> with_server_noise(text, batch_size=1, multiplier=0.5).noise_std
    1.0
    """
    defense = parse_defense(text, batch_size=batch_size)
    if multiplier is None:
        return defense
    require_positive(multiplier, "noise multiplier of the server")
    clip = defense.update.clip_norm
    require(
        text.partition(":")[0].strip() in SERVED and clip is not None,
        f"a server adds noise after {' and '.join(SERVED)}, and {text} is none of them; leave the "
        "server's noise out",
    )
    assert clip is not None
    noise = GaussianNoise(multiplier * clip)
    return replace(defense, update=Chain((defense.update, noise)))


def statement_of(text: str, *, batch_size: int, server_noise: float | None = None) -> Statement:
    """Return what a defense claims and the mechanism that it is.

    Args:
        text: as ``parse_defense`` reads it.
        batch_size: records of a batch; the noise of DP-SGD depends on it.
        server_noise: noise multiplier of the server; see ``with_server_noise``.

    Raises:
        InputError: the text names no defense, or no server adds noise after it.

    >>> found = statement_of("local-dp:clip=1,sensitivity=1e-4,epsilon=10,delta=1e-5", batch_size=1)
    >>> found.claim, round(found.mechanism.noise_std, 8)
    (Claim(epsilon=10.0, delta=1e-05), 4.845e-05)
    >>> statement_of("percentile-privacy", batch_size=1).why
    'it drops and cuts coordinates, and adds no noise'
    """
    choice = REGISTRY.read(text, supplied=SUPPLIED)
    defense = with_server_noise(text, batch_size=batch_size, multiplier=server_noise)
    settings = choice.call(batch_size=batch_size)
    word = str(getattr(settings, "word", "") or text.partition(":")[0])
    mechanism = mechanism_of(defense, batch_size=batch_size)
    sparse = word == "svt" and choice.built_in
    why = "" if mechanism or sparse else WITHOUT.get(word, OWN_CODE)
    return Statement(word, settings, _claim(word, settings), mechanism, why)


def mechanism_of(defense: Defense, *, batch_size: int) -> GaussianRelease | None:
    """Return the Gaussian mechanism that a defense is; None where it is none.

    It clips each record's gradient and adds noise to the mean before anything else, or it clips the
    whole update and adds noise next. Changes after the noise keep the promise.
    """
    release = defense.release
    if release is not None and release.noise_std > 0:
        return GaussianRelease(release.clip, release.noise_std, batch_size)
    clip, variance = None, 0.0
    for part in defense.update.parts:
        if part.clip_norm is not None and not variance:
            clip = part.clip_norm
        elif part.noise_variance and part.without_noise().is_identity:
            variance += part.noise_variance
        elif not part.is_identity:
            if variance:
                break
            clip = None  # what comes between may make the update larger again
    return None if clip is None or not variance else GaussianRelease(clip, math.sqrt(variance))


def sensitivity_for(claim: Claim, clip: float, near: Neighbours, *, rounds: int = 1) -> float:
    """Return the sensitivity to write into ``local-dp`` for the epsilon that its claim means.

    The formula of ``local-dp`` turns it into the smallest noise that keeps the claim for these
    neighbours over all rounds. It has three digits, rounded up.

    >>> sensitivity_for(Claim(10.0, 1e-5), 1.0, Neighbours())
    2.07
    """
    moved = GaussianRelease(clip, 1.0).sensitivity(near) * math.sqrt(rounds)
    std = noise_for_epsilon(claim.epsilon, moved, claim.delta)
    exact = std * claim.epsilon / math.sqrt(2 * math.log(1.25 / claim.delta))
    return rounded_up(exact)


def _claim(word: str, settings: Any) -> Claim | None:
    if word == "local-dp":
        return Claim(settings.epsilon, settings.delta)
    return Claim(settings.epsilon, 0.0) if word == "svt" else None
