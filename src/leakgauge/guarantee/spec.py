"""The settings of a guarantee's audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Whole
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.fields import hidden_widths, learning_rate
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, setting
from leakgauge.runs.spec import Spec

Domain = Literal["box", "free", "valid"]
"""``"box"``: each position within the range that the data show. ``"free"``: anywhere. ``"valid"``:
every original column has a value that occurs in the data."""

BOX: Domain = "box"
"""The default. The paper states no domain; its Figure 8 fits this one, as the distances of records
in ``"free"`` are larger than its epsilons allow."""


QUESTION = "guarantee"
RANDOM, CRAFTED = "random", "crafted"
CANARIES = (RANDOM, CRAFTED, *(f"{CRAFTED}-{domain}" for domain in get_args(Domain)))
STATISTICS = ("likelihood-ratio", "norm")
DPSGD = "dpsgd"
MECHANISMS = (DPSGD, "opacus")
UNITS, RELATIONS = ("client", "record"), ("replace", "add")
CLIP, NOISE = 2.0, 0.1
"""Default DP-SGD of an audit (that of the ``dpsgd`` defense)."""
PILOT = 64
"""Releases of a pilot, which show the noise of a mechanism of others."""


@dataclass(frozen=True, kw_only=True)
class GuaranteeSpec(Spec):
    """Settings of one audit of DP-SGD on a single record.

    References:
        Li et al., CCS 2024, section 7.
    """

    aliases: ClassVar[Mapping[str, str]] = {"secret": "attribute"}

    ask: tuple[str, ...] = setting(
        (QUESTION,), "what to ask", ASKING, cells=True, choices=(QUESTION,), option=False
    )
    attribute: str | None = setting(
        None, "column whose value an attacker infers", ASKING, once=True, each=True
    )
    clip: Real | None = setting(
        None, "C of DP-SGD: the largest l2 norm of a record's gradient", DEFENSE, least=1e-30
    )
    noise: Real | None = setting(
        None, "sigma of DP-SGD: standard deviation of the noise on each coordinate", DEFENSE
    )
    trials: Whole = setting(5000, "releases to score", ATTACK, least=2)
    canary: str = setting(
        CRAFTED,
        "record to release: crafted (the worst record that a search finds) or random",
        ATTACK,
        choices=CANARIES,
    )
    domain: str | None = setting(
        None,
        "domain of a crafted record: box (within the range of the data, which fits the "
        "paper's figures), free or valid",
        ATTACK,
        choices=get_args(Domain),
    )
    statistic: str = setting(
        STATISTICS[0], "score of a release: likelihood-ratio or norm", ATTACK, choices=STATISTICS
    )
    mechanism: str = setting(
        MECHANISMS[0],
        "mechanism to audit: dpsgd, opacus, a defense that changes updates such as "
        "local-dp:clip=1,sensitivity=1,epsilon=1,delta=1e-05 or svt (without --clip and --noise), "
        "or your own as MODULE:FUNCTION, called with (gradients by name [1, ...], torch.Generator)",
        DEFENSE,
    )
    server_noise: Real | None = setting(
        None,
        "noise multiplier of the server after fixed-clipping or adaptive-clipping: standard "
        "deviation of its noise on the sum of updates, over the clipping norm",
        DEFENSE,
        above=0,
    )
    delta: Real = setting(
        1e-5, "delta of all epsilons; that of a filter if it is larger", DEFENSE, above=0
    )
    unit: str | None = setting(
        None,
        "who the promise protects: client (all that one sends) or record; default: client for a "
        "defense of the whole update, else record",
        DEFENSE,
        choices=UNITS,
    )
    relation: str = setting(
        RELATIONS[0],
        "how neighbours of the promise differ: replace (by another one) or add (or removed)",
        DEFENSE,
        choices=RELATIONS,
    )
    releases: Whole = setting(
        1,
        "releases of a training, each with fresh noise, over which epsilon is composed; each audit "
        "trial is one release",
        DEFENSE,
        least=1,
    )
    hidden: tuple[Whole, ...] = hidden_widths()
    rounds: Whole = setting(
        0,
        "epochs of DP-SGD on the records before the audit; 0 audits the initial model",
        TRAINING,
        least=0,
    )
    lr: Real = learning_rate(0.01)
    batch_size: Whole = setting(16, "records in a training step", TRAINING, least=1)
    private: Whole | None = setting(
        None, "largest number of records to train on; default: all", DATA, least=2
    )
    defense: tuple[str, ...] = setting(
        (), "defenses of the audit; a dpsgd among them sets clip and noise", DEFENSE, option=False
    )

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one exists."""
        if (knowledge, when) == (ADAPTIVE, ACCUMULATED):
            return ""
        return (
            "is about a guarantee; its auditor knows the mechanism and sees no rounds; write "
            "knowledge: adaptive and no round"
        )
