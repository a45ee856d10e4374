"""The settings of a guarantee's audit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, get_args

from leakgauge.core.checks import require, require_choice
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.parsing import read
from leakgauge.core.strict import Real, Whole
from leakgauge.results.measurements import ACCUMULATED
from leakgauge.runs.setting import ASKING, ATTACK, DATA, DEFENSE, TRAINING, Setting
from leakgauge.runs.spec import NONE, Spec

if TYPE_CHECKING:
    from leakgauge.data.source import Source
    from leakgauge.data.table import Roles, Table
    from leakgauge.guarantee.mechanism import DPSGDMechanism

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

_DPSGD = {"dpsgd": {"clip": float, "noise": float}}


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
            "where a crafted record may lie: box (within the range of the data, which fits the "
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

    def check(self) -> None:
        """Refuse what is wrong for any data.

        Raises:
            InputError: a value is outside its bounds, settings contradict each other, the trials
                are too few, or the mechanism cannot be loaded.
        """
        from leakgauge.guarantee.mechanism import build_mechanism
        from leakgauge.privacy.estimate import largest_showable

        super().check()
        require(
            not self.numeric,
            f"--loss {self.loss} has labels of numbers, and this audit tries every class for its "
            "record; leave out --loss and cut the label into ranges with --bins",
        )
        require(self.delta < 1, f"--delta is {self.delta:g}; expected a number between 0 and 1")
        require(
            self.domain is None or self.canary == CRAFTED,
            "--domain needs --canary crafted; leave one out",
        )
        if ":" not in self.mechanism:
            require_choice(self.mechanism, "--mechanism", MECHANISMS)
        build_mechanism(self.mechanism, claimed(self))
        largest_showable(self.trials, self.delta)

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty if one exists."""
        if (knowledge, when) == (ADAPTIVE, ACCUMULATED):
            return ""
        return (
            "is about a guarantee, whose auditor knows the mechanism and sees no rounds; write "
            "knowledge: adaptive and no round"
        )

    def resolve(self, source: "Source") -> Self:
        """Return the settings with roles, attribute, canary, clip and noise filled in.

        ``defense`` is kept only if neither a setting nor a defense sets clip and noise.

        Raises:
            InputError: the data are not a table, or the attribute is not one of its features.
        """
        _require_table(source)
        roles = _roles(self, source)
        attribute = self.attribute or next(iter(roles.secrets), None)
        _require_attribute(attribute, source)
        cut = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
        kept = [name for name in roles.drop if name != attribute]
        dpsgd = claimed(self)
        chosen = (self.clip, self.noise) != (None, None) or promised_by(self.defense) is not None
        resolved = replace(
            self,
            attribute=attribute,
            label=roles.label,
            group=roles.group,
            drop=tuple(dict.fromkeys([*kept, *self.drop])),
            bins=cut | dict(self.bins),
            canary=f"{CRAFTED}-{self.domain or BOX}" if self.canary == CRAFTED else self.canary,
            domain=None,
            clip=dpsgd.clip,
            noise=dpsgd.noise,
            defense=() if chosen else self.defense or (NONE,),
        )
        resolved.check()
        resolved.table(source)
        return resolved

    def table(self, source: "Source") -> "Table":
        """Return the table of the data, with the attribute among its features.

        Raises:
            InputError: the attribute is not a feature, or the table cannot be used.
        """
        from leakgauge.guarantee.run.table import attribute_table

        return attribute_table(
            source,
            str(self.attribute),
            label=str(self.label),
            group=self.group,
            drop=self.drop,
            bins=self.bins,
            drop_missing=self.drop_missing,
        )


def promised_by(defenses: tuple[str, ...]) -> str | None:
    """Return the first defense that promises differential privacy, or None.

    >>> promised_by(("none", "sign", "dpsgd:clip=1,noise=0.5"))
    'dpsgd:clip=1,noise=0.5'
    """
    return next((text for text in defenses if text.partition(":")[0] == "dpsgd"), None)


def claimed(spec: GuaranteeSpec) -> "DPSGDMechanism":
    """Return the DP-SGD that the mechanism claims to be.

    Clip and noise are those of the settings, else those of a ``dpsgd`` defense, else 2 and 0.1.

    Raises:
        InputError: clip or noise is not above 0.

    >>> claimed(GuaranteeSpec(defense=("none", "dpsgd:clip=1,noise=0.5")))
    DPSGDMechanism(clip=1.0, noise=0.5)
    """
    from leakgauge.guarantee.mechanism import DPSGDMechanism

    _, settings = read(promised_by(spec.defense) or "dpsgd", _DPSGD, "defense")
    clip = settings.get("clip", CLIP) if spec.clip is None else spec.clip
    noise = settings.get("noise", NOISE) if spec.noise is None else spec.noise
    return DPSGDMechanism(clip, noise)


def _require_table(source: "Source") -> None:
    require(source.pixels is None, f"{source.name!r} holds images, no attributes; bring a table")
    require(
        source.task is None,
        f"{source.name!r} is your own task, and its records have no named columns; bring a "
        "table instead of --task",
    )


def _require_attribute(attribute: str | None, source: "Source") -> None:
    require(
        attribute is not None,
        f"no attribute of {source.name!r} is named; name the column to infer "
        "with --attribute, or with --secret in an audit",
    )


def _roles(spec: GuaranteeSpec, source: "Source") -> "Roles":
    """Return the roles of the columns; the secrets are those of a known dataset."""
    from leakgauge.data.roles import resolve_roles

    return resolve_roles(
        source.roles,
        label=spec.label,
        group=spec.group,
        secret_needed=False,
        columns=source.frame.columns,
    )
