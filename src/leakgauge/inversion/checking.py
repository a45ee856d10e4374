"""Refuses contradictory settings, whatever the data are."""

from collections.abc import Collection
from dataclasses import fields

from leakgauge.core.checks import require
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.inversion import words
from leakgauge.inversion.methods import (
    FISHED,
    FOR_TABLES,
    STRONGEST,
    Traits,
    method_of,
    refuse_tables_only,
)
from leakgauge.inversion.run.attempt import attempts_of, with_ladder
from leakgauge.inversion.servers.catalog import HONEST, server_of
from leakgauge.inversion.spec import InversionSpec
from leakgauge.runs.spec import NONE, check_bounds
from leakgauge.training.catalog import SGD

_OF_EPOCHS = ("server_lr", "same_batches", "matching", "rough_iterations", "joint", "gamma")
"""Settings that mean nothing with a single epoch."""


def check(spec: InversionSpec) -> None:
    """Refuse what is wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings are
            contradictory.
    """
    check_bounds(spec)
    _check_ladder(spec)
    if spec.update is not None:
        _check_update(spec)
        return
    full = with_ladder(spec)
    if spec.task is not None:
        _refuse_others(full, words.OF_TEXT, "does not go with the text of a --task")
    for part in (
        _check_server,
        _check_client,
        _check_draw,
        _check_epochs,
        _check_loss,
        _check_knowledge,
    ):
        part(full)
    attempts_of(spec)


def _check_server(spec: InversionSpec) -> None:
    """Refuse an active server where updates of several models are compared."""
    server = server_of(spec.server)
    if server is None:
        require(
            FISHED not in spec.method,
            f"--method {FISHED} reads the updates of a server that isolates a class; add --server "
            "fishing",
        )
        return
    for name, wanted in (("ladder", False), ("epochs", 1)):
        require(
            getattr(spec, name) == wanted,
            f"--server {spec.server} alters the model of one round; leave out {_flag(name)}",
        )
    require(
        not spec.numeric,
        f"--server {spec.server} reads classes, and --loss {spec.loss} has labels of numbers; "
        f"take --server {HONEST}",
    )


def _check_ladder(spec: InversionSpec) -> None:
    """Refuse settings that a ladder makes itself."""
    if not spec.ladder:
        return
    for name in ("train_mode", "unknown", "reshuffle", "simulate", "local_rates"):
        require(
            not getattr(spec, name),
            f"--ladder runs clients with and without {_flag(name)}; leave it out",
        )
    require(spec.epochs == 1, "--ladder goes with one update of a client; leave out --epochs")
    require(
        len(spec.method) < 2
        and all(one.searches for one in _traits(spec).values())
        and len(spec.defense) == 1,
        "--ladder runs one search against one defense; name one --method and one --defense",
    )
    require(
        ADAPTIVE not in spec.knowledge,
        f"--ladder runs attackers that know of no defense; leave out --knowledge {ADAPTIVE}",
    )


def _check_update(spec: InversionSpec) -> None:
    """Refuse settings that do not go with the update of a real client."""
    require(spec.task is not None, "--update and --task go together; give both")
    _refuse_others(spec, words.OF_AN_UPDATE, "is about DATA, and --update takes the place of DATA")
    require(
        len(spec.method) < 2,
        f"--method names {len(spec.method)} methods; --update takes one, since losses of "
        "different methods cannot be compared: run one command for each",
    )
    require(
        spec.statistics != words.GRANTED,
        f"--statistics {words.GRANTED} grants those of true records, which are not known here; "
        f"take {words.FROM_BUFFERS} or {words.PROXY}",
    )
    require(
        words.OPTIMIZER not in spec.unknown,
        "an update names its optimizer, or shows it, or --local-optimizer names it; leave out "
        f"--unknown {words.OPTIMIZER}",
    )
    _check_assumed(spec)
    for text in spec.method:
        refuse_tables_only(text, "DATA; with --update choose")


def _refuse_others(spec: InversionSpec, allowed: Collection[str], why: str) -> None:
    """Refuse settings that are not ``allowed`` and differ from their defaults."""
    for one in fields(spec):
        value = getattr(spec, one.name)
        require(
            one.name in allowed or not value or value == one.default,
            f"{_flag(one.name)} {why}; leave it out",
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _check_client(spec: InversionSpec) -> None:
    each = spec.records_per_update
    require(
        spec.images is None or spec.images % each == 0,
        f"--images is {spec.images}; expected a multiple of {each}, the records behind one "
        "update (--batch-size times --local-steps)"
        if spec.clients == 1
        else f"--images is {spec.images}; expected a multiple of {each}, the records behind one "
        "sum of updates (--batch-size times --local-steps times --clients)",
    )
    sums = (spec.local_steps, spec.local_epochs, spec.clients)
    require(
        not spec.simulate or max(sums) > 1 or spec.local_optimizer != SGD,
        "--simulate is about local steps; give --local-steps of 2 or more",
    )
    require(
        not spec.reshuffle or spec.local_epochs > 1,
        "--reshuffle is about several passes; give --local-epochs of 2 or more",
    )
    _check_assumed(spec)
    require(
        spec.statistics is None or spec.train_mode or spec.ladder,
        "--statistics is about BatchNorm in training mode; add --train-mode",
    )


def _check_assumed(spec: InversionSpec) -> None:
    require(
        spec.assumed_lr is None or words.RATE in spec.unknown or spec.ladder,
        f"--assumed-lr is about a rate that the attacker does not know; add --unknown {words.RATE}",
    )


def _check_loss(spec: InversionSpec) -> None:
    if not spec.numeric:
        return
    methods = [method_of(text) for text in spec.method or (STRONGEST,)]
    require(
        spec.labels == words.KNOWN or not any(one.traits.uses_labels for one in methods),
        f"--loss {spec.loss} has labels of numbers, which no search infers; give the attacker "
        "known ones (--labels known; in an audit --set reconstruction.labels=known), or take "
        f"--method {FOR_TABLES}",
    )
    require(
        spec.epochs == 1,
        "--epochs matches records by their classes, and --loss mse has none; leave one out",
    )


def _check_draw(spec: InversionSpec) -> None:
    require(
        spec.first == 0 or spec.draw == words.FIRST,
        f"first is {spec.first}, which is about records in the order of the data; write draw: "
        f"{words.FIRST}",
    )
    require(
        spec.draw != words.DISTINCT or not spec.numeric,
        f"--draw {words.DISTINCT} is about classes, and --loss {spec.loss} has labels of numbers; "
        f"choose {words.RANDOM}",
    )
    require(
        spec.classes is None or not spec.numeric,
        f"--classes is about outputs for classes, and --loss {spec.loss} has one for a number; "
        "leave it out",
    )


def _check_epochs(spec: InversionSpec) -> None:
    if spec.epochs == 1:
        for name in _OF_EPOCHS:
            require(
                not getattr(spec, name),
                f"{_flag(name)} is about several epochs; give --epochs of 2 or more, or leave it "
                "out",
            )
        return
    require(
        set(spec.defense) == {NONE},
        "--epochs goes with updates without a defense; leave out --defense",
    )
    require(
        not spec.simulate,
        "--epochs takes the local steps of an update for one batch; leave out --simulate",
    )
    for text, traits in _traits(spec).items():
        require(
            traits.several_epochs, f"--method {text} reads updates one by one; leave out --epochs"
        )
    for name in words.OF_CLIENTS:
        require(
            getattr(spec, name) == type(spec).__dataclass_fields__[name].default,
            f"--epochs goes with clients of plain SGD; leave out {_flag(name)}",
        )
    require(
        spec.matching != words.KNOWN or spec.labels == words.KNOWN or spec.same_batches,
        f"--matching {words.KNOWN} tells the attacker the place of each record, and inferred "
        f"labels have no places in a batch; give --labels {words.KNOWN}, or --same-batches",
    )


def _check_knowledge(spec: InversionSpec) -> None:
    only_adaptive = set(spec.knowledge) == {ADAPTIVE}
    require(
        not only_adaptive or set(spec.defense) != {NONE},
        "an adaptive attacker needs a defense to adapt to; name one with --defense",
    )
    for text, traits in _traits(spec).items():
        require(
            not only_adaptive or traits.adapts,
            f"--method {text} adapts to no defense; choose --knowledge {STATIC}",
        )


def _traits(spec: InversionSpec) -> dict[str, Traits]:
    """Return the traits of each method that the spec names."""
    return {text: method_of(text).traits for text in spec.method}
