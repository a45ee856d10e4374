"""The settings of a guarantee's audit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.strict import Real, Whole
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
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
MECHANISMS = ("dpsgd", "opacus")
CLIP, NOISE = 2.0, 0.1
"""Default DP-SGD of an audit (that of the ``dpsgd`` defense)."""


@dataclass(frozen=True, kw_only=True)
class GuaranteeSpec(Spec):
    """Settings of one audit of DP-SGD on a single record.

    References:
        Li et al., CCS 2024, section 7.
    """

    aliases: ClassVar[Mapping[str, str]] = {"secret": "attribute"}

    ask: Annotated[
        tuple[str, ...],
        Setting("what to ask", cells=True, choices=(QUESTION,), option=False, panel=ASKING),
    ] = (QUESTION,)
    attribute: Annotated[
        str | None,
        Setting("column whose value an attacker infers", once=True, each=True, panel=ASKING),
    ] = None
    clip: Annotated[
        Real | None,
        Setting(
            "C of DP-SGD: the largest l2 norm of a record's gradient", least=1e-30, panel=DEFENSE
        ),
    ] = None
    noise: Annotated[
        Real | None,
        Setting(
            "sigma of DP-SGD: standard deviation of the noise on each coordinate", panel=DEFENSE
        ),
    ] = None
    trials: Annotated[Whole, Setting("releases to score", least=2, panel=ATTACK)] = 5000
    canary: Annotated[
        str,
        Setting(
            "record to release: crafted (the worst record that a search finds) or random",
            choices=CANARIES,
            panel=ATTACK,
        ),
    ] = CRAFTED
    domain: Annotated[
        str | None,
        Setting(
            "domain of a crafted record: box (within the range of the data, which fits the "
            "paper's figures), free or valid",
            choices=get_args(Domain),
            panel=ATTACK,
        ),
    ] = None
    statistic: Annotated[
        str,
        Setting("score of a release: likelihood-ratio or norm", choices=STATISTICS, panel=ATTACK),
    ] = STATISTICS[0]
    mechanism: Annotated[
        str,
        Setting(
            "mechanism to audit: dpsgd, opacus, or your own as MODULE:FUNCTION, called with "
            "(gradients by name [1, ...], torch.Generator)",
            panel=DEFENSE,
        ),
    ] = MECHANISMS[0]
    delta: Annotated[Real, Setting("delta of all epsilons", above=0, panel=DEFENSE)] = 1e-5
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network", least=1, panel=TRAINING),
    ] = (100,)
    rounds: Annotated[
        Whole,
        Setting(
            "epochs of DP-SGD on the records before the audit; 0 audits the initial model",
            least=0,
            panel=TRAINING,
        ),
    ] = 0
    lr: Annotated[Real, Setting("learning rate of the training", above=0, panel=TRAINING)] = 0.01
    batch_size: Annotated[Whole, Setting("records in a training step", least=1, panel=TRAINING)] = (
        16
    )
    private: Annotated[
        Whole | None,
        Setting(
            "largest number of records to train on; default: all",
            least=1,
            panel=DATA,
        ),
    ] = None
    defense: Annotated[
        tuple[str, ...],
        Setting(
            "defenses of the audit; a dpsgd among them sets clip and noise",
            option=False,
            panel=DEFENSE,
        ),
    ] = ()

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one exists."""
        if (knowledge, when) == (ADAPTIVE, ACCUMULATED):
            return ""
        return (
            "is about a guarantee; its auditor knows the mechanism and sees no rounds; write "
            "knowledge: adaptive and no round"
        )
