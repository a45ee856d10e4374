"""Fills in what the data decide, refuses what they do not allow, and prepares the run."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from torch import nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.core.types import Task
from leakgauge.core.versions import versions
from leakgauge.data import Source
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.roles import resolve_roles
from leakgauge.inversion import words
from leakgauge.inversion.methods import DAGER, STRONGEST, TABLE, TOKENS, method_of, strongest
from leakgauge.inversion.metrics.lpips import Lpips, default_lpips
from leakgauge.inversion.run.attempt import Attempt, attempts_of, with_ladder
from leakgauge.inversion.run.received import PreparedUpdate, prepare_received
from leakgauge.inversion.run.scenario import Scenario, scenario_of, weights_file
from leakgauge.inversion.scoring import are_large, are_pictures
from leakgauge.inversion.servers.catalog import server_of
from leakgauge.inversion.spec import InversionSpec
from leakgauge.models.named import NETS
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Prepared
from leakgauge.runs.spec import NONE, plain
from leakgauge.training.catalog import SGD
from leakgauge.training.update import Update

Value = TypeVar("Value")

_UNSCORED = (
    "the update came from a real client: its true records are not known here, so nothing is scored"
)

_LABEL_NAMES = ("y", "label")
"""Columns of data without named roles that are taken for the label."""


@dataclass(frozen=True, eq=False)
class InversionPrepared(Prepared):
    """Attempts that can run: everything that can be refused before the first one was checked.

    Attributes:
        scenario: private records, network and public records.
        lpips: network that scores images too; None without weights.
        attempts: the attempts, in order.
        described: description of the run.
    """

    spec: InversionSpec
    scenario: Scenario
    lpips: Lpips | None
    attempts: tuple[Attempt, ...]
    described: Run

    @property
    def model(self) -> nn.Module:
        """The network that clients train."""
        return self.scenario.task.model

    def inputs(self) -> dict[str, str]:
        """Return the digest of the network that scores images, which may come without a setting."""
        if self.lpips is None or self.scenario.pixels is None:
            return {}
        return {"lpips": fingerprint(dict(self.lpips.weights))}

    @property
    def origin(self) -> Run:
        """Everything that kept attempts depend on, also the weights of the networks."""
        networks = {"model": fingerprint(dict(self.scenario.params)), **self.inputs()}
        return replace(self.described, data={**self.described.data, **networks})


@dataclass(frozen=True, eq=False)
class ReceivedPrepared(Prepared):
    """The update of a real client that can be attacked.

    Attributes:
        update: the update with its method.
        described: description of the run.
    """

    spec: InversionSpec
    update: PreparedUpdate
    described: Run


def prepare(spec: InversionSpec, source: Source) -> InversionPrepared | ReceivedPrepared:
    """Return what a run needs: resolved settings, encoded records, network and attempts.

    Raises:
        InputError: the data or files do not allow it; the message says what would.
    """
    if spec.update is not None:
        return _prepare_received(replace(spec, method=spec.method or (STRONGEST,)), source)
    if source.task is not None:
        spec = _with_text(spec, source)
    else:
        spec = with_ladder(spec)
        spec = replace(spec, method=spec.method or _strongest(spec, source))
        spec = _with_network(_with_roles(spec, source), source)
    lpips = default_lpips() if spec.lpips is None else Lpips.load(spec.lpips)
    scenario = scenario_of(source, spec)
    spec = replace(_over_epochs(spec), draw=scenario.drawn, files=_digest(spec))
    attempts = tuple(attempts_of(spec))
    for attempt in attempts:
        attempt.client.defense.check(scenario.task)
    described = _described(spec, source, scenario)
    return InversionPrepared(spec, source, scenario, lpips, attempts, described)


def _described(spec: InversionSpec, source: Source, scenario: Scenario) -> Run:
    hidden = ("ask", "task", "update", "files")
    settings = {name: value for name, value in plain(spec).items() if name not in hidden}
    settings |= {name: list(dict.fromkeys(getattr(spec, name))) for name in ("method", "defense")}
    facts = {"name": source.name, "fingerprint": source.fingerprint, "records": len(scenario.x)}
    return Run("", settings, facts, scenario.notes, versions())


def _prepare_received(spec: InversionSpec, source: Source) -> ReceivedPrepared:
    """Return the update that a spec names, ready for the attack."""
    assert source.task is not None
    assert source.dataset is not None
    assert spec.update is not None
    path = Path(spec.update)
    update = Update.load(path)
    if spec.images is not None:
        update = replace(update, records=spec.images)
    task, data = source.task, source.dataset.to(spec.device)
    (text,) = spec.method
    method = method_of(
        text,
        iterations=spec.iterations,
        restarts=spec.restarts,
        are_images=are_pictures(data.x),
        large=are_large(data.x),
    )
    prepared = prepare_received(
        Task(task.model.to(spec.device), task.loss),
        data,
        update,
        method,
        labels=spec.labels,
        simulate=spec.simulate or None,
        optimizer=spec.local_optimizer if spec.local_optimizer != SGD else None,
        assumed_lr=(spec.assumed_lr or words.ASSUMED_LR) if words.RATE in spec.unknown else None,
        statistics=spec.statistics,
        seed=spec.seed,
    )
    spec = replace(spec, iterations=method.iterations or spec.iterations, files=_digest(spec))
    sent = hashlib.sha256(path.read_bytes()).hexdigest()
    shown = words.OF_AN_UPDATE - {"ask", "data", "files"}
    facts = {
        "name": path.name,
        "fingerprint": hashlib.sha256(f"{sent} {source.fingerprint}".encode()).hexdigest(),
        "records": prepared.seen.shape[0],
        "public": len(data),
    }
    settings = {name: value for name, value in plain(spec).items() if name in shown}
    described = Run("", settings, facts, (_UNSCORED,), versions())
    return ReceivedPrepared(spec, source, prepared, described)


def _with_text(spec: InversionSpec, source: Source) -> InversionSpec:
    """Return the settings for the sequences of a language model; refuse any other task."""
    assert source.dataset is not None
    x = source.dataset.x
    require(
        x.dim() == 2 and not x.is_floating_point(),
        f"the records of --task are {list(x.shape[1:])} {str(x.dtype).removeprefix('torch.')}; "
        "only a language model's token sequences ([L], int64) are rebuilt from its own data: name "
        "DATA, or attack a client's update: leakgauge invert --update FILE --task MODULE:FUNCTION",
    )
    require(
        spec.labels != words.KNOWN or source.dataset.y.shape != x.shape,
        "--labels known would grant the tokens themselves, the labels of a causal model; leave it "
        "out",
    )
    spec = replace(spec, method=spec.method or (DAGER,))
    for attempt in attempts_of(spec):
        require(
            attempt.attack.traits.needs == TOKENS,
            f"--method {attempt.method} rebuilds images or rows of tables, and --task has token "
            f"sequences; choose {DAGER}",
        )
    images = spec.images or words.default_image_count(spec.records_per_update)
    return replace(spec, label=spec.label or "label", images=images)


def _strongest(spec: InversionSpec, source: Source) -> tuple[str, ...]:
    """Return the strongest methods that fit a spec without methods."""
    server = server_of(spec.server)
    if server is not None:
        return (server.traits.method,)
    one_gradient = not spec.ladder and spec.epochs == 1 and set(spec.knowledge) != {ADAPTIVE}
    return strongest(
        is_table=source.pixels is None and one_gradient,
        has_classes=not spec.numeric,
        searches=spec.iterations is not None or spec.restarts > 1 or spec.simulate,
        is_defended=set(spec.defense) != {NONE},
    )


def _with_roles(spec: InversionSpec, source: Source) -> InversionSpec:
    is_table, columns = source.pixels is None, [str(name) for name in source.frame.columns]
    label = spec.label
    if label is None and source.roles is None:
        likely = [name for name in _LABEL_NAMES if name in columns]
        label = likely[0] if likely else columns[0] if len(columns) == 1 else None
    roles = resolve_roles(
        source.roles,
        label=label,
        group=spec.group,
        drop=spec.drop,
        bins=spec.bins,
        numeric=spec.numeric,
        secret_needed=False,
        columns=columns,
    )
    require(
        is_table or not (spec.group or spec.drop),
        "--group and --drop are about the features of a table; leave them out for images",
    )
    return replace(
        spec,
        label=roles.label,
        group=roles.group if is_table else None,
        drop=roles.drop if is_table else (),
        bins=roles.bins,
        images=spec.images or words.default_image_count(spec.records_per_update),
    )


def _with_network(spec: InversionSpec, source: Source) -> InversionSpec:
    is_table = source.pixels is None
    net = spec.net or (words.MLP if is_table else "slim")
    for attempt in attempts_of(spec):
        require(
            attempt.attack.traits.needs != TOKENS,
            f"--method {attempt.method} rebuilds token sequences; give a language model by --task",
        )
        require(
            is_table or attempt.attack.traits.needs != TABLE,
            f"--method {attempt.method} needs a table: a first linear layer and known columns; "
            "the networks for images have neither",
        )
    require(
        (net == words.MLP) == is_table,
        f"--net is {net!r}, but {source.name!r} holds {'a table' if is_table else 'images'}; "
        f"choose {words.MLP if is_table else 'one of ' + ', '.join(NETS)}",
    )
    require(
        is_table or not spec.hidden,
        "--hidden is about the network for tables; images have --net; leave it out",
    )
    spec = replace(spec, net=net, hidden=(spec.hidden or words.HIDDEN) if is_table else ())
    default = spec.iterations or words.ITERATIONS
    shared = _shared(one.attack.iterations or default for one in attempts_of(spec))
    return replace(spec, iterations=shared)


def _over_epochs(spec: InversionSpec) -> InversionSpec:
    """Fill in what several epochs need; a rule stays open where each method has its own."""
    if spec.epochs == 1:
        return spec
    rules = [one.rules for one in attempts_of(spec)]
    averaged = spec.local_lr * spec.local_steps
    return replace(
        spec,
        server_lr=spec.server_lr or (words.SERVER_LR if spec.local_steps == 1 else averaged),
        matching=_shared(one.matching for one in rules),
        joint=_shared(one.joint for one in rules),
        gamma=_shared(one.later for one in rules),
    )


def _shared(values: Iterable[Value]) -> Value | None:
    """Return the one value that all of them are; None where they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _digest(spec: InversionSpec) -> str:
    """Return the sha256 of the files that settings name; empty where they name none."""
    weights = None if spec.weights is None else weights_file(spec.weights)
    paths = [Path(path) for path in (spec.update, weights, spec.lpips) if path is not None]
    if not paths:
        return ""
    try:
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    except OSError as error:
        raise InputError(f"{error.filename!r} cannot be read ({error.strerror})") from error
