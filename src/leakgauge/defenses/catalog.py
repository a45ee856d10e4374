"""Names of the defenses on the command line. Importing this module loads no torch."""

from dataclasses import replace
from typing import TYPE_CHECKING

from leakgauge.core.checks import require
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.defenses.defense import Defense

DEFENSES = {
    "none": "leakgauge.defenses.defense:none",
    "prune": "leakgauge.defenses.prune:Prune",
    "sign": "leakgauge.defenses.sign:Sign",
    "perturb": "leakgauge.defenses.perturb:Perturb",
    "vib": "leakgauge.defenses.vib:VIB",
    "dpsgd": "leakgauge.defenses.dpsgd:DPSGD",
    "clip": "leakgauge.defenses.clip:Clip",
    "noise": "leakgauge.defenses.noise:Noise",
    "quantise": "leakgauge.defenses.quantise:Quantise",
    "local-dp": "leakgauge.defenses.local_dp:LocalDP",
    "fixed-clipping": "leakgauge.defenses.local_dp:FixedClipping",
    "adaptive-clipping": "leakgauge.defenses.local_dp:AdaptiveClipping",
    "percentile-privacy": "leakgauge.defenses.percentile:PercentilePrivacy",
    "svt": "leakgauge.defenses.svt:SVT",
}
"""Import path of each defense, which is imported on first use."""

EXAMPLES = (
    "prune:rate=0.99, sign, perturb:gamma=0.005,alpha=0.002,steps=5, vib:beta=0.01, "
    "dpsgd:clip=2,noise=0.1, clip:l2=1, noise:std=0.01, quantise:levels=4"
    ", local-dp:clip=1,sensitivity=1,epsilon=1,delta=1e-05, fixed-clipping:norm=1"
    ", adaptive-clipping:norm=0.1, percentile-privacy:percentile=10,gamma=0.01,steps=1"
    ", svt:fraction=0.1,epsilon=0.1,noise=0.1,gamma=1e-05,tau=1e-06"
)
"""Each defense with its settings, for the help of the command line."""

ON_LAYERS = "prune:rate=0.99,layers=first+3+last"
"""Example of a defense on some layers only, for the help of the command line."""

HELP = (
    f"NAME[:key=value,...]: {EXAMPLES}; of some layers only, {ON_LAYERS}; or your own, "
    "MODULE:NAME[:key=value,...]"
)

WHOLE = {
    "dpsgd": "its guarantee needs clipping and noise on every layer",
    "clip": "it limits the norm of the whole gradient",
    "perturb": "its network reads the whole gradient",
    "local-dp": "it limits the norm of the whole update",
    "fixed-clipping": "it limits the norm of the whole update",
    "adaptive-clipping": "it limits the norm of the whole update",
    "percentile-privacy": "its percentile is of the whole update",
    "svt": "its budget is of the whole update",
    "vib": "it changes the model, not gradients",
}
"""The defenses that have no meaning on some layers, and why."""

REGISTRY = Registry("defense", DEFENSES, "leakgauge.defenses")

SUPPLIED = ("batch_size",)
"""Arguments that a defense gets in addition to its settings."""

NOTATION = REGISTRY.notation(supplied=SUPPLIED)
"""What users may write for a defense."""


def parse_defense(text: str, *, batch_size: int) -> "Defense":
    """Return the defense of ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]``.

    NAME is one of ``DEFENSES`` or an entry point of the group ``leakgauge.defenses``. MODULE may be
    in the working folder. The name stands for the settings of a defense, such as ``Prune``, or for
    a function that returns a ``Defense``; both may take ``batch_size``.

    Args:
        text: such as ``prune:rate=0.99``, ``sign`` or ``my_module:build:rate=0.5``.
        batch_size: records of a batch; DP-SGD's noise depends on it.

    Returns:
        The defense. A user-defined defense has ``text`` as its name.

    Raises:
        InputError: the name, a key or a value is not known, or the defense has no meaning on some
            layers.

    >>> parse_defense("prune:rate=0.9", batch_size=16).update
    PruneTransform(rate=0.9, whole=False)
    >>> parse_defense("prun", batch_size=16)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: defense 'prun' is not known; did you mean 'prune'?
    """
    from leakgauge.defenses.defense import Defense

    _refuse_layers(text)
    choice = REGISTRY.read(text, supplied=SUPPLIED)
    made = choice.call(batch_size=batch_size)
    defense = made.build(batch_size=batch_size) if hasattr(made, "build") else made
    require(
        isinstance(defense, Defense),
        f"defense {text!r} made {type(defense).__name__}; expected a leakgauge.defenses.Defense, "
        "or settings with a method build that returns one",
    )
    assert isinstance(defense, Defense)
    return defense if choice.built_in else replace(defense, name=choice.text)


def _refuse_layers(text: str) -> None:
    """Refuse ``layers=`` for a defense of the whole gradient."""
    name, _, rest = (part.strip() for part in text.partition(":"))
    keys = [part.partition("=")[0].strip() for part in rest.split(",")]
    require(
        name not in WHOLE or "layers" not in keys,
        f"defense {text.strip()!r}: {name} takes no layers, as {WHOLE.get(name)}; leave layers= "
        "out, or choose prune, sign, noise or quantise",
    )
