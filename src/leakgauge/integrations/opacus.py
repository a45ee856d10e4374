"""Opacus: a monitor beside its training, and an audit of it with gradient canaries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leakgauge.defenses.clip import ClipNorm
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.noise import GaussianNoise
from leakgauge.integrations.opacus_audit import Audit as Audit
from leakgauge.integrations.opacus_steps import each_release as each_release
from leakgauge.integrations.opacus_steps import flat_clip
from leakgauge.integrations.watcher import Watcher
from leakgauge.privacy.dp_audit import audit_runs as audit_runs
from leakgauge.privacy.profile import profile_of as profile_of


@contextmanager
def watching(optimizer: Any, monitor: Watcher) -> Iterator[None]:
    """Watch the training of a ``DPOptimizer``, from ``PrivacyEngine.make_private``.

    ``.grad`` then holds what the optimizer releases: the clipped sum with noise, over the expected
    batch size. The cheap measure clips the gradient of each record, and adds the noise that it
    would get alone. Opacus' accountant counts on; see ``each_release``.

    Args:
        optimizer: a ``DPOptimizer``.
        monitor: of the model.

    Raises:
        InputError: the optimizer is not one of Opacus.
    """
    clip = flat_clip(optimizer)
    released = each_release(optimizer, lambda _: monitor.look())
    with monitor, released:
        monitor.drive()
        monitor.defend_records(
            Defense(
                "opacus",
                per_example=ClipNorm(clip),
                update=GaussianNoise(float(optimizer.noise_multiplier * clip)),
            )
        )
        yield
