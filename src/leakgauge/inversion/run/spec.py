"""One attempt to rebuild records: its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.data import Source
from leakgauge.data.roles import resolve_roles
from leakgauge.defenses import parse_defense
from leakgauge.inference.run import ADAPTIVE, STATIC
from leakgauge.inversion.epochs.assignment import METHODS as IMAGE_MATCHINGS
from leakgauge.inversion.search.parse import parse_attack
from leakgauge.inversion.search.presets import PRESETS
from leakgauge.inversion.search.settings import Settings
from leakgauge.models import NETS, SCHEMES
from leakgauge.training.client import Client

QUESTION = "reconstruction"
EXACT = "exact"
METHODS = (*PRESETS, EXACT)
GRADIENTS = "gradients"
MATCHINGS = (*IMAGE_MATCHINGS, GRADIENTS)
KNOWN, INFERRED = LABELS = ("known", "inferred")
MLP = "mlp"
ITERATIONS = 500
HIDDEN = (100,)
LARGEST_SIDE = 1024
"""Of images, in pixels: all images of the data are held at this size."""

_USUAL_LABELS = ("y", "label")


@dataclass(frozen=True)
class InversionCell:
    """One attempt to rebuild records from what clients send; one value of each setting.

    Attributes:
        data: a dataset's name, or the path of images or a table.
        method: one of ``PRESETS``, also with settings, as ``"agic:growth=cubic"``; or ``"exact"``:
            what division alone reads off a first linear layer, for tables.
        ask: always ``"reconstruction"``.
        label: the column that the model predicts; None where the dataset has a usual one.
        images: records that are attacked, the first ones of the data.
        first: the first of them.
        side: height and width to which images are resized, in pixels.
        batch_size: records of a step; local_steps and local_lr, of a client before it sends.
        local_steps: see ``batch_size``.
        local_lr: see ``batch_size``; with several epochs, of the server's step between them.
        epochs: in which one client that has all records sends updates.
        matching: how records are found again in later epochs: ``"greedy"`` or ``"optimal"`` by
            rough images, or ``"gradients"``; None takes the last where there are several epochs.
        iterations: of the search; None takes 500 (what the papers take needs hours).
        restarts: of the search; the one of smallest loss is kept.
        labels: ``"inferred"``, or ``"known"`` where they are granted to the attacker.
        net: one of ``NETS``, for tables ``"mlp"``; None takes slim, for tables mlp.
        init: how the initial weights are drawn, one of ``SCHEMES``.
        weights: a file of trained ones.
        hidden: widths of the hidden layers of the network for tables; none named takes 100.
        defense: on what is sent.
        adaptive: whether the attacker knows the defense.
        simulate: whether it simulates local steps.
        group: a column that is no feature; drop, others.
        drop: see ``group``.
        bins: for a label of numbers, into how many ranges to cut it.
        drop_missing: whether rows without label are left out.
        device: where torch computes.
        seed: all randomness follows from it.
    """

    data: str
    method: str = "leakgauge"
    ask: str = QUESTION
    label: str | None = None
    images: Whole = 8
    first: Whole = 0
    side: Whole = 32
    batch_size: Whole = 1
    local_steps: Whole = 1
    local_lr: Real = 1e-4
    epochs: Whole = 1
    matching: str | None = None
    iterations: Whole | None = None
    restarts: Whole = 1
    labels: str = INFERRED
    net: str | None = None
    init: str = "pytorch"
    weights: str | None = None
    hidden: tuple[Whole, ...] = ()
    defense: str = "none"
    adaptive: Truth = False
    simulate: Truth = False
    group: str | None = None
    drop: tuple[str, ...] = ()
    bins: Mapping[str, Whole] = field(default_factory=dict)
    drop_missing: Truth = False
    device: str = "cpu"
    seed: Whole = 0

    def check(self) -> None:
        """Refuse what can be refused before any data are read."""
        require_choice(self.labels, "--labels", LABELS)
        require_choice(self.init, "--init", SCHEMES)
        if self.net is not None:
            require_choice(self.net, "--net", (*NETS, MLP))
        for name in ("images", "epochs", "side"):
            require_count(getattr(self, name), f"--{name}")
        require(
            self.side <= LARGEST_SIDE,
            f"--side is {self.side}; expected at most {LARGEST_SIDE} pixels",
        )
        require(self.first >= 0, f"--first is {self.first}; expected 0 or more")
        each = self.client.records
        require(
            self.images % each == 0,
            f"--images is {self.images}; expected a multiple of {each}, the records behind one "
            "update (--batch-size times --local-steps)",
        )
        require(
            self.epochs == 1 or (self.local_steps == 1 and self.defense == "none"),
            "--epochs goes with single gradients without a defense; leave out --local-steps and "
            "--defense",
        )
        if self.matching is not None:
            require_choice(self.matching, "--matching", MATCHINGS)
            require(
                self.epochs > 1,
                "--matching is about several epochs; give --epochs of 2 or more, or leave it out",
            )
        require(
            not self.simulate or self.local_steps > 1,
            "--simulate is about local steps; give --local-steps of 2 or more",
        )
        require(
            self.method != EXACT or (self.epochs == 1 and not self.adaptive),
            f"--method {EXACT} reads one gradient as it is; leave out --epochs and what adapts",
        )
        require(
            not self.adaptive or self.defense != "none",
            "an adaptive attacker needs a defense to know; name one with --defense",
        )
        _ = self.settings

    @property
    def knowledge(self) -> str:
        """Of the defense, as records have it."""
        return ADAPTIVE if self.adaptive else STATIC

    @property
    def client(self) -> Client:
        """Who sends."""
        defense = parse_defense(self.defense, batch_size=self.batch_size)
        return Client(self.batch_size, self.local_steps, self.local_lr, defense)

    @property
    def settings(self) -> Settings:
        """The method, with the iterations that are asked for; exact recovery searches nothing."""
        return settings_of(self.method, self.iterations, self.restarts, pictures=self.net != MLP)

    def settled(self, source: Source) -> "InversionCell":
        """With what the data leave no choice about filled in."""
        columns = [str(name) for name in source.frame.columns]
        label = self.label
        if label is None and source.roles is None:
            usual = [name for name in _USUAL_LABELS if name in columns]
            label = usual[0] if usual else columns[0] if len(columns) == 1 else None
        roles = resolve_roles(
            source.roles,
            label=label,
            group=self.group,
            drop=self.drop,
            bins=self.bins,
            secret_needed=False,
            columns=columns,
        )
        tables = source.pixels is None
        net = self.net or (MLP if tables else "slim")
        require(
            self.method != EXACT or tables,
            f"--method {EXACT} needs a first linear layer; the networks for images have none",
        )
        require(
            (net == MLP) == tables,
            f"--net is {net!r}, but {source.name!r} holds {'a table' if tables else 'images'}; "
            f"choose {MLP if tables else 'one of ' + ', '.join(NETS)}",
        )
        require(
            tables or not (self.group or self.drop),
            "--group and --drop are about the features of a table; leave them out for images",
        )
        require(
            tables or not self.hidden,
            "--hidden is about the network for tables; images have --net; leave it out",
        )
        return replace(
            self,
            label=roles.label,
            group=roles.group,
            drop=roles.drop,
            bins=roles.bins,
            net=net,
            matching=self.matching or (GRADIENTS if self.epochs > 1 else None),
            hidden=(self.hidden or HIDDEN) if tables else (),
            iterations=self.settings.iterations,
        )


def settings_of(method: str, iterations: int | None, restarts: int, *, pictures: bool) -> Settings:
    """A method's settings for a command that should end within minutes.

    Args:
        method: as of a cell.
        iterations: None takes 500, or the method's own where it has fewer.
        restarts: of the search.
        pictures: whether neighbouring values of a record are neighbouring pixels.

    >>> settings_of("agic", None, 1, pictures=True).iterations
    500
    """
    found = parse_attack(method, EXACT) or PRESETS["agic"]
    chosen = min(ITERATIONS, found.iterations) if iterations is None else iterations
    found = replace(found, iterations=chosen, restarts=restarts)
    return found if pictures else replace(found, total_variation=0.0)


def default_image_count(each: int) -> int:
    """How many records are attacked by default: the usual number, in whole updates of ``each``.

    >>> default_image_count(1), default_image_count(3), default_image_count(16)
    (8, 9, 16)
    """
    each = max(each, 1)  # What is no count is refused with the client.
    return each * -(-InversionCell.images // each)
