"""``leakgauge guarantee TABLE``: does DP-SGD hide an attribute of a single record?"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import torch
from pydantic_core import to_json
from rich.console import Console
from rich.text import Text
from torch.nn.functional import cross_entropy
from typer import Argument, Option

from leakgauge import guarantee as room
from leakgauge.audit.judging import versions
from leakgauge.checks import nearest, require, require_choice
from leakgauge.cli import options
from leakgauge.data import Roles, Source, Table, encode, make_table, open_data
from leakgauge.data.usual import filled_in
from leakgauge.experiment.store import RunFolder
from leakgauge.guarantee import DPSGD, Craft, LikelihoodRatio, Norm, Pair, Result
from leakgauge.guarantee.canary import Domain
from leakgauge.models import mlp
from leakgauge.records import Run, write_text
from leakgauge.report.wording import count, short
from leakgauge.rng import stream, torch_stream
from leakgauge.threads import one_thread
from leakgauge.types import Task

RANDOM, CRAFTED = CANARIES = ("random", "crafted")
STATISTICS = {one.name: one for one in (Norm(), LikelihoodRatio())}
RESULT_FILE = "guarantee.json"
ENDS = ("value", "low", "high")
BROKEN = "The promise does not hold"


@dataclass(frozen=True)
class Asked:
    """What to audit, checked before any data are read."""

    attribute: str
    clip: float
    noise: float
    trials: int
    canary: str
    domain: str | None
    statistic: str
    delta: float
    hidden: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        require_choice(self.canary, "--canary", CANARIES)
        require_choice(self.statistic, "--statistic", STATISTICS)
        for width in self.hidden:
            require(width > 0, f"--hidden is {width}; expected a whole number above 0")
        if self.domain is not None:
            require_choice(self.domain, "--domain", get_args(Domain))
            require(self.canary == CRAFTED, "--domain needs --canary crafted; leave one out")
        require(0 < self.delta < 1, f"--delta is {self.delta:g}; expected a number between 0 and 1")
        DPSGD(self.clip, self.noise)
        room.largest_showable(self.trials, self.delta)


def run(
    table: Annotated[str, Argument(help="a CSV or Parquet file, or the name of a table")],
    attribute: Annotated[str, Option(help="the column whose two values are told apart")],
    clip: Annotated[float, Option(help="C of DP-SGD: no record's gradient is longer")],
    noise: Annotated[float, Option(help="sigma of DP-SGD: of the noise on each coordinate")],
    label: Annotated[str | None, Option(help="the column that the model predicts")] = None,
    trials: Annotated[int, Option(help="releases that are judged")] = 5000,
    canary: Annotated[str, Option(help="crafted (the worst record found) or random")] = CRAFTED,
    domain: Annotated[str | None, Option(help="crafted: valid (default), box or free")] = None,
    statistic: Annotated[str, Option(help=" or ".join(STATISTICS))] = LikelihoodRatio.name,
    delta: Annotated[float, Option(help="of every epsilon")] = 1e-5,
    hidden: options.Hidden = None,
    group: Annotated[str | None, Option(help="the column of the person: no feature")] = None,
    drop: Annotated[list[str] | None, Option(help="column to leave out; repeatable")] = None,
    bins: Annotated[list[str] | None, Option(help="COL=N: cut a numeric label in N")] = None,
    drop_missing: Annotated[bool, Option("--drop-missing", help="skip rows without label")] = False,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="folder to keep the result in")] = None,
    json_: options.Json = False,
) -> None:
    """Does DP-SGD hide an attribute of a single record, as it promises?"""
    where = Craft.domain if domain is None and canary == CRAFTED else domain
    widths = tuple(hidden or (100,))
    asked = Asked(attribute, clip, noise, trials, canary, where, statistic, delta, widths, seed)
    notices = Console(stderr=True)
    source = open_data(table)
    roles = filled_in(source.roles, label=label, group=group, secret_needed=False)
    kept = [name for name in roles.drop if name != attribute]
    cut = {name: ranges for name, ranges in roles.bins.items() if name == roles.label}
    cut |= options.bin_counts(bins or ())
    # The attribute is a plain feature: a secret would be none.
    roles = replace(roles, secrets=(), drop=(*kept, *(drop or ())), bins=cut)
    records = _checked(source, roles, attribute, drop_missing=drop_missing)
    told = {"label": roles.label, **asdict(asked)}
    folder = None
    if out is not None:
        settings = {**told, **asdict(roles), "table": table, "drop_missing": drop_missing}
        about = {"name": source.name, "fingerprint": source.fingerprint, "records": len(records)}
        folder = RunFolder.claim(out, Run("guarantee", settings, about, versions=versions()))
    for note in (*source.notes, *records.notes):
        notices.print(Text(f"note: {note}"), soft_wrap=True)
    with notices.status("finding a record and releasing its gradients"), one_thread():
        pair, result = _audited(records, asked)
    text = to_json({**told, **as_json(pair, result)}, inf_nan_mode="null").decode()
    if folder is not None:
        write_text(folder.path / RESULT_FILE, text + "\n")
    if json_:
        print(text)
        return
    for line in lines(asked, pair, result):
        Console().print(Text("\n" + line, style="bold red" if line.startswith(BROKEN) else ""))


def _checked(source: Source, roles: Roles, name: str, *, drop_missing: bool) -> Table:
    """The table, with the attribute among its features."""
    require(source.pixels is None, f"{source.name!r} holds images, no attributes; bring a table")
    for role, names in (("label", [roles.label]), ("group", [roles.group]), ("drop", roles.drop)):
        require(name not in names, f"--attribute {name!r} is no feature, as --{role} names it, too")
    table = make_table(source.frame, roles, drop_missing=drop_missing)
    # Why a column is no feature is told in the notes alone.
    why = "".join(f"; {note}" for note in table.notes if note.startswith(f"column {name!r} "))
    hint = why or nearest(name, map(str, table.features))
    require(name in table.features, f"--attribute {name!r} is none of the features{hint}")
    return table


def _audited(table: Table, asked: Asked) -> tuple[Pair, Result]:
    """The record, and what an auditor learns of its attribute from the initial model."""
    data, seed = encode(table, fit_on=torch.arange(len(table))), asked.seed
    generator = torch_stream(seed, "model")
    model = mlp(data.x.shape[1], len(table.classes), asked.hidden, generator=generator)
    task = Task(model, cross_entropy)
    if asked.canary == RANDOM:
        (pair,) = room.choose_pairs(data, asked.attribute, 1, rng=stream(seed, "pairs"))
    else:
        attribute = room.attribute_of(data, asked.attribute, rng=stream(seed, "values"))
        search = Craft(cast(Domain, asked.domain), restarts=min(Craft.restarts, len(data)))
        rng = stream(seed, "craft")
        pair = room.craft(task, None, data, attribute, search, clip=asked.clip, rng=rng).pair
    mechanism, score = DPSGD(asked.clip, asked.noise), STATISTICS[asked.statistic]
    chosen: dict[str, Any] = {"trials": asked.trials, "delta": asked.delta, "seed": seed}
    return pair, room.audit_pair(task, None, pair, mechanism, statistic=score, **chosen)


def as_json(pair: Pair, result: Result) -> dict[str, Any]:
    """What was found, by name."""
    most, theory = result.largest_showable, vars(result.theory).items()
    return {
        "trials": result.trials,
        "values": pair.attribute.values,
        "distance_over_clip": result.distance_over_clip,
        "epsilon": {
            "estimate": {end: getattr(result.estimate, end) for end in ENDS},
            "gaussian": {end: getattr(result.gaussian, end) for end in ENDS},
            "largest_showable": most.value,
            "largest_showable_low": most.low,
            **{name: getattr(one, "value", one) for name, one in theory},
        },
        "saturated": result.saturated,
        "violated": result.violated,
    }


def lines(asked: Asked, pair: Pair, result: Result) -> list[str]:
    """The result for a reader who is no specialist."""
    theory, (first, second) = result.theory, pair.attribute.values
    most, half = short(result.largest_showable.low), result.trials // 2
    refutable = room.epsilon_gaussian_dp(room.Errors(0, 0, half, half), asked.delta).low
    record = f"crafted record (domain: {asked.domain})" if asked.domain else "random record"
    limit = f"The trials are not saturated: without an error they would show {most}"
    if result.saturated:
        limit = (
            f"Not one trial went wrong, so the trials are the limit: {count(result.trials)} cannot "
            f"show more than {most}, whatever leaks; more --trials can"
        )
    verdict = (
        f"{BROKEN}: where noise is Gaussian, these errors mean an epsilon of at least "
        f"{short(result.gaussian.low)}, more than is promised for this record. A right mechanism "
        "looks so in at most 5 of 100 audits; repeat with another --seed."
        if result.violated
        else "The audit found nothing against the promise. That is no proof: another record may "
        f"show more, and this many trials can refute no promise above {short(refutable)}."
    )
    return [
        f"DP-SGD (clip {asked.clip:g}, noise {asked.noise:g}) released the gradient of a {record} "
        f"{count(result.trials)} times, half with {asked.attribute!r} = {first!r}, half with "
        f"{second!r}. Epsilon says how well these can be told apart, from 0 (not at all) upward.",
        f"Shown: epsilon is at least {short(result.estimate.low)} (95 % confidence; best guess "
        f"{short(result.estimate.value)}; delta {asked.delta:g}). {limit}.",
        f"Promised: epsilon is at most {short(theory.pair_exact.value)} for this record and "
        f"{short(theory.mechanism_exact.value)} for the worst one (by the textbook formula, which "
        f"is proven up to 1 only: {short(theory.mechanism_classic.value)}).",
        verdict,
    ]
