"""Methods that rebuild records: their protocol, their traits and their names.

A method is one file and one line in ``METHODS``, an entry point of another package, or a user's own
``MODULE:NAME``. Importing this module loads no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from leakgauge.core.checks import InputError, require
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.core.types import Task
    from leakgauge.defenses import Defense
    from leakgauge.inversion.observed import (
        AttackOptions,
        Knowledge,
        ObservedUpdates,
        Reconstruction,
    )

EXACT = "exact"
"""Divides gradients of a first linear layer."""

EXACT_BATCH = "exact-batch"
"""Recovers whole batches from gradients of a linear layer before a ReLU."""

IMPRINT = "imprint"
"""Reads single records off a layer that a server altered."""

FISHED = "fished"
"""Searches for the records of the one class that a server isolated."""

TABLEAK = "tableak"
"""Pools searches for rows of a table, with a confidence for each cell."""

DAGER = "dager"
"""Reads token sequences from gradients of a language model."""

STRONGEST = "leakgauge"
"""The strongest search."""

FOR_TABLES = EXACT
"""The method that reads plain gradients of any table better than a search does."""

_PRESETS = "leakgauge.inversion.search.presets"

METHODS = {
    "dlg": f"{_PRESETS}:DLG",
    "dlg-adam": f"{_PRESETS}:DLG_ADAM",
    "idlg": f"{_PRESETS}:IDLG",
    "inverting-gradients": f"{_PRESETS}:INVERTING_GRADIENTS",
    "agic": f"{_PRESETS}:AGIC",
    STRONGEST: f"{_PRESETS}:LEAKGAUGE",
    EXACT: "leakgauge.inversion.exact:Division",
    EXACT_BATCH: "leakgauge.inversion.exact_batch.method:ExactBatch",
    TABLEAK: "leakgauge.inversion.tableak.method:TabLeak",
    IMPRINT: "leakgauge.inversion.servers.imprint:Imprint",
    FISHED: "leakgauge.inversion.servers.fished:fished",
    DAGER: "leakgauge.inversion.text.method:Dager",
}
"""Import path of each method, which is imported on first use."""

FOR_UPDATES = tuple(name for name in METHODS if name not in (EXACT, TABLEAK, FISHED, DAGER))
"""Built-in methods that need nothing but an update and public records."""

REGISTRY = Registry("attack", METHODS, "leakgauge.inversion_methods")

SUPPLIED = ("iterations", "restarts", "are_images", "trained", "large")
"""Arguments that a method may take besides its settings; see ``method_of``."""

NOTATION = REGISTRY.notation(supplied=SUPPLIED)
"""What users may write for a method."""

HELP = (
    f"attack as NAME[:key=value,...]: {', '.join(METHODS)}; or your own, "
    "MODULE:NAME[:key=value,...]; by default the strongest that "
    f"fits: {STRONGEST} for images, {EXACT_BATCH} for tables ({FOR_TABLES} where labels are "
    f"numbers), both where a table's gradients are defended, and {DAGER} for text"
)
"""Help text of the command line."""

ANY, TABLE, TOKENS = "any", "table", "tokens"
"""Kinds of records that a method can need."""


@dataclass(frozen=True)
class Traits:
    """What a method needs and can do.

    Attributes:
        does: what the method does, as the end of a sentence that begins with its name.
        needs: kind of records that it rebuilds: ``ANY`` encoded records or images, ``TABLE`` (rows
            with known columns) or ``TOKENS`` (sequences for a language model).
        uses_labels: whether it uses labels, so that they are inferred where they are unknown.
        searches: whether it searches: it takes iterations and restarts, reads an update at the rate
            that the attacker assumes, and can simulate local steps.
        adapts: whether it can adapt to a known defense.
        several_epochs: whether it rebuilds records from updates of several epochs together; such a
            method is a ``search.presets.Search``.
    """

    does: str = "rebuilds records from the update that was sent."
    needs: str = ANY
    uses_labels: bool = True
    searches: bool = False
    adapts: bool = False
    several_epochs: bool = False


class Method(ABC):
    """An attack that rebuilds records from the updates of clients.

    A subclass says by ``traits`` what it needs, and implements ``rebuild``.
    """

    traits: ClassVar[Traits] = Traits()

    @property
    def iterations(self) -> int:
        """Number of iterations of its search; 0 without one."""
        return 0

    @property
    def finds_labels(self) -> bool:
        """Whether it finds unknown labels together with the records."""
        return False

    @property
    def described(self) -> str:
        """Its settings as text, kept with each measurement."""
        return repr(self) if is_dataclass(self) else type(self).__name__

    def adapts_to(self, defense: Defense) -> bool:
        """Return whether knowledge of the defense changes the attack."""
        return False

    @abstractmethod
    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the records behind each of T updates.

        Args:
            task: the model as the attacker runs it, and its loss; never changed.
            seen: the updates.
            known: what else the attacker knows. Labels are there where ``traits.uses_labels``,
                unless the method ``finds_labels``.
            options: seed, progress and checkpoint.

        Raises:
            InputError: the method cannot attack this model or this update.
        """


def method_of(text: str, **supplied: Any) -> Method:
    """Return the method of ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]``.

    NAME is one of ``METHODS`` or an entry point of the group ``leakgauge.inversion_methods``.
    MODULE may be in the working folder. The name stands for a subclass of ``Method``, or for a
    function that returns one; both may take arguments of ``SUPPLIED``.

    Args:
        text: such as ``agic``, ``agic:beta=2,total_variation=0.001`` or ``my_module:Mine:rate=2``.
        supplied: some of ``SUPPLIED``: iterations of a search (None takes its default), restarts,
            whether records are images, whether the network is trained, and whether it is large.

    Raises:
        InputError: the name, a key or a value is not known, or the name makes no method.

    >>> method_of("agic:function=logarithmic").settings.objective.function
    'logarithmic'
    >>> method_of("agic:betta=2")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: attack 'agic' has no setting 'betta'; did you mean 'beta'?
    """
    made = REGISTRY.read(text, supplied=SUPPLIED).call(**supplied)
    require(
        isinstance(made, Method),
        f"attack {text!r} made {type(made).__name__}; expected a leakgauge.inversion.Method",
    )
    assert isinstance(made, Method)
    return made


def reported_traits(text: str) -> Traits:
    """Return the traits of a method that a finished run names, also where its code is gone.

    >>> reported_traits("agic:beta=2, local steps").searches, reported_traits("gone:Mine").searches
    (True, False)
    """
    name = text.partition(":")[0].partition(",")[0]
    try:
        return method_of(name if is_method(name) else text).traits
    except InputError:
        return Traits()


def is_method(text: str) -> bool:
    """Return whether ``text`` begins with the name of a method.

    >>> is_method("agic:beta=2"), is_method("forest")
    (True, False)
    """
    return text.partition(":")[0] in REGISTRY.names()


def refuse_tables_only(text: str, why: str) -> None:
    """Refuse a method that needs more than an update, such as the columns of a table.

    Args:
        text: the method, as a user writes it.
        why: what the method is for, for the message.

    Raises:
        InputError: the method is unknown, or needs a table or tokens.
    """
    needs = method_of(text).traits.needs
    others = ", ".join(FOR_UPDATES)
    require(needs == ANY, f"--method {text.partition(':')[0]} is for {why} one of {others}")


def strongest(
    *, is_table: bool, has_classes: bool, searches: bool, is_defended: bool
) -> tuple[str, ...]:
    """Return the strongest methods for some records.

    For tables, the exact methods read plain gradients better than any search, but cannot adapt to a
    defense; so a search runs as well where clients have a defense, or a user asks for a search.

    Args:
        is_table: whether division is possible: one plain gradient of rows of a table.
        has_classes: whether labels are classes, so that whole batches can be certified.
        searches: whether a user gave settings of a search.
        is_defended: whether clients have a defense.

    >>> strongest(is_table=True, has_classes=True, searches=False, is_defended=True)
    ('exact-batch', 'leakgauge')
    """
    if not is_table:
        return (STRONGEST,)
    exact = EXACT_BATCH if has_classes else FOR_TABLES
    return (exact, STRONGEST) if searches or is_defended else (exact,)
