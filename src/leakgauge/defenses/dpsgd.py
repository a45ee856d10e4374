"""DP-SGD: clip each record's gradient and add noise to the mean."""

import math
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.checks import require_count
from leakgauge.defenses.clip import ClipNorm
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.noise import GaussianNoise


@dataclass(frozen=True)
class DPSGD(DefenseSettings):
    """Clip each record's gradient and add noise to the mean.

    The paper's formula adds N(0, noise^2 I) to each of k records' gradients and takes the mean,
    whose noise has the standard deviation noise / sqrt(k) in each coordinate;
    ``noise_multiplier`` converts it for Opacus. The epsilon next to the formula is that of noise on
    the sum of gradients instead: docs/explanations/static-adaptive.md compares the readings. The
    noise fits the batch size of ``build``: a smaller batch, such as the last of an epoch, needs
    more noise for the same guarantee.

    Args:
        clip: largest l2 norm of a record's gradient.
        noise: sigma; 0 for clipping without noise.

    References:
        Li et al., CCS 2024, section 6.1 (clip 2, sigma 0.1); Abadi et al., CCS 2016.

    >>> DPSGD().build(batch_size=16).update
    GaussianNoise(std=0.025)
    """

    word: ClassVar[str] = "dpsgd"
    clip: float = 2.0
    noise: float = 0.1

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense for batches of k = ``batch_size`` records."""
        require_count(batch_size, "dpsgd's batch size")
        std = GaussianNoise(self.noise).std / math.sqrt(batch_size)
        return Defense(self.name, per_example=ClipNorm(self.clip), update=GaussianNoise(std))


def noise_multiplier(clip: float, noise: float, batch_size: int) -> float:
    """Return the noise multiplier of Opacus and the accountants for ``DPSGD(clip, noise)``.

    In Opacus, the noise on the *sum* of clipped gradients has the standard deviation
    multiplier * clip, so on the mean multiplier * clip / k; here it is noise / sqrt(k). Hence
    multiplier = noise * sqrt(k) / clip. The unit of privacy is one record, added or removed.

    >>> noise_multiplier(2.0, 0.1, 16)
    0.2
    """
    return noise * math.sqrt(batch_size) / clip
