"""Turn the results of the adversaries into measurements."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from leakgauge.core.rng import stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Params
from leakgauge.inference.adversaries.adversary import AnyAttack
from leakgauge.inference.catalog import ATTRIBUTE, PANEL, PROPERTY, ROUND_MEANS, USER
from leakgauge.inference.run.baselines import baselines
from leakgauge.inference.run.figures import (
    baseline_figures,
    beyond_figures,
    most_at_risk,
    scored,
    scored_trials,
    utility_figures,
)
from leakgauge.inference.run.readings import (
    RunReading,
    WeightingRules,
    chosen,
    of_first_rounds,
    over_rounds,
    plain_sum,
    pooled,
)
from leakgauge.inference.run.rounds import RoundResults
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.words import FRESH
from leakgauge.results import scores
from leakgauge.results.measurements import (
    CHOSEN,
    HEADLINE,
    STACKED,
    CellContext,
    Measurement,
)
from leakgauge.results.statistics import Floats
from leakgauge.results.worst import highest

Lead = Callable[[str, str, RunReading], None]
"""Gets the knowledge, the adversary and the reading of a headline."""


def no_lead(knowledge: str, adversary: str, reading: RunReading) -> None:
    """Do nothing."""


def measure(
    stage: GameStage,
    rounds: Sequence[RoundResults],
    final: Params,
    *,
    dataset: str,
    label: str,
    jointly: Mapping[str, RunReading] = MappingProxyType({}),
    lead: Lead = no_lead,
) -> list[Measurement]:
    """Return the figures of every adversary, by round and over the rounds, and of the model.

    Args:
        stage: game, trials and adversaries.
        rounds: results of the adversaries, round by round.
        final: parameters after the last round.
        dataset: name of the data in the measurements.
        label: name of the label in the measurements.
        jointly: results on all rounds at once, from ``attack_jointly``.
        lead: called with the knowledge, the adversary and the reading of each headline.
    """
    base = CellContext(
        question="inference",
        game=stage.game.name,
        dataset=dataset,
        label=label,
        secret=stage.secret,
        defense=stage.defense.name,
        seed=stage.spec.seed,
    )
    with one_thread():
        measurements, alone = [], baselines(stage)
        for knowledge in stage.knowledge:
            known = replace(base, knowledge=knowledge)
            measurements += _of_knowledge(stage, rounds, jointly, alone, known, lead)
        measurements += utility_figures(stage, final, base)
        return [*measurements, *baseline_figures(stage, alone, base)]


def _of_knowledge(
    stage: GameStage,
    rounds: Sequence[RoundResults],
    jointly: Mapping[str, RunReading],
    alone: Mapping[str, Floats],
    base: CellContext,
    lead: Lead,
) -> list[Measurement]:
    """Return the figures of all adversaries with one knowledge of the defense."""
    rules = WeightingRules(stage.log_prior, stage.shadow_batches)
    members = {
        attack.name: _readings(stage, rules, rounds, jointly, base.knowledge, attack)
        for attack in stage.attacks
    }
    if stage.panel:
        several = {name: members[name] for name in stage.panel}
        together = [name for name in several if f"{base.knowledge} {name}" in jointly]
        means = jointly.get(f"{base.knowledge} {ROUND_MEANS}")
        members = {PANEL: _panel(rules, several, together, means), **members}
    best = {name: chosen(each.preferred, margin=rules.margin) for name, each in members.items()}
    scored = {
        name: _figures(stage, readings, replace(base, adversary=name), best[name], alone)
        for name, readings in members.items()
    }
    winner = headline({name: one for name, one in best.items() if one is not None}, rules)
    measurements = []
    for name, figures in scored.items():
        reading = best[name]
        measurements += _most_at_risk(stage, members[name], figures)
        measurements += [one for each in figures.values() for one in each]
        if reading is None:
            continue
        marks = [CHOSEN, HEADLINE] if name == winner else [CHOSEN]
        measurements += [
            _marked(one, mark, members[name], reading)
            for mark in marks
            for one in figures[reading.when]
        ]
        if name == winner:
            lead(base.knowledge, name, reading)
        if name == winner and stage.game.name in ONE_AGAINST_REST:
            measurements += _values(stage, reading, measurements)
    return measurements


ONE_AGAINST_REST = (PROPERTY, ATTRIBUTE)
"""Games with a headline for each value of the secret as well."""


@dataclass(frozen=True, eq=False)
class _Member:
    """The readings of one adversary.

    Attributes:
        rounds: single rounds.
        sums: sums over all rounds; the preferred one first.
        first: sums of the first rounds.
    """

    rounds: Sequence[RunReading]
    sums: Sequence[RunReading]
    first: Sequence[RunReading] = ()

    @property
    def preferred(self) -> list[RunReading]:
        """All candidate readings, the preferred one first."""
        return [*self.sums, *self.rounds] if len(self.rounds) > 1 else [*self.rounds]


def _readings(
    stage: GameStage,
    rules: WeightingRules,
    rounds: Sequence[RoundResults],
    jointly: Mapping[str, RunReading],
    knowledge: str,
    attack: AnyAttack,
) -> _Member:
    key = f"{knowledge} {attack.name}"
    single = []
    for number, results in enumerate(rounds, start=1):
        held_out, details = results.held_out.get(key), {"adversary": results.details[key]}
        if held_out is not None and stage.spec.batches == FRESH:
            held_out = held_out.by_secret()
        posterior, seconds = results.log_posterior[key], results.seconds[key]
        single.append(RunReading(number, posterior, held_out, details, seconds))
    weigh = all(one.held_out is not None for one in single)
    alone = key in jointly
    sums = [jointly[key]] if alone else over_rounds(single, rules, weigh=weigh)
    first = [] if alone else of_first_rounds(single, rules)
    seconds = sum(one.seconds for one in single)
    of_attack = {"adversary": repr(attack)}
    return _Member(
        single,
        [replace(one, details={**of_attack, **one.details}, seconds=seconds) for one in sums],
        [replace(one, details=of_attack) for one in first],
    )


def _panel(
    rules: WeightingRules,
    members: Mapping[str, _Member],
    together: Collection[str],
    means: RunReading | None = None,
) -> _Member:
    """Return the sums of the members: round by round, and over all rounds.

    Members in ``together`` attack all rounds at once, and count once. ``means`` reads the mean
    input from all rounds, and counts in their sum alone.
    """
    by_round = [name for name in members if name not in together]
    each = zip(*(members[name].rounds for name in by_round), strict=True)
    text = f"weights of {', '.join(by_round)}: {{}}"
    single = [
        pooled(dict(zip(by_round, parts, strict=True)), rules, number, text)
        for number, parts in enumerate(each, start=1)
    ]
    parts = {name: one.sums[0] for name, one in members.items()}
    parts |= {} if means is None else {ROUND_MEANS: means}
    text = f"weights of {', '.join(parts)}, each over its rounds: {{}}"
    every = pooled(parts, rules, STACKED, text)
    sums = [every, plain_sum(single, rules, held_out=True)]
    adversary = {"adversary": "the sum of its members' calibrated log-odds"}
    return _Member(
        single,
        [replace(one, details={**adversary, **one.details}) for one in sums],
        [replace(one, details=adversary) for one in of_first_rounds(single, rules)],
    )


def headline(best: Mapping[str, RunReading], rules: WeightingRules) -> str | None:
    """Return the adversary that held-out shadow data favour; None without any.

    The panel is preferred, unless another adversary is clearly better.

    Args:
        best: chosen reading of each adversary by name.
        rules: rules of the choice.
    """
    picked = chosen([*best.values()], margin=rules.margin if PANEL in best else 0.0)
    return next((name for name, reading in best.items() if reading is picked), None)


def _figures(
    stage: GameStage,
    member: _Member,
    base: CellContext,
    best: RunReading | None,
    alone: Mapping[str, Floats],
) -> dict[int | str, list[Measurement]]:
    """Return the figures of every reading; those of the whole are compared with the baselines."""
    whole = best or member.preferred[0]
    figures = {}
    for one in (*member.rounds, *member.first, *member.sums[::-1]):
        read = replace(base, round=one.when, details=one.details, seconds=one.seconds)
        figures[one.when] = list(scored(stage, one, read))
        if one is whole:
            figures[one.when] += beyond_figures(stage, one, alone, read)
    return figures


def _values(
    stage: GameStage, reading: RunReading, measurements: Sequence[Measurement]
) -> list[Measurement]:
    """Return the headline's AUROC of each value of the secret, and of the one that leaks most.

    Two values leak alike.
    """
    head = next(one for one in reversed(measurements) if one.metric == scores.AUROC)
    if stage.game.values < 3:
        return [replace(head, metric=scores.WORST_VALUE, curve=None)]
    each = _each_value(stage, reading, head)
    top = max(each, key=lambda one: one.estimate.value)
    worst = highest([one.estimate for one in each])
    told = {"value": top.metric.partition(": ")[2], "values compared": str(len(each))}
    details = {**top.details, **told}
    return [*each, replace(top, metric=scores.WORST_VALUE, estimate=worst, details=details)]


def _each_value(stage: GameStage, reading: RunReading, like: Measurement) -> list[Measurement]:
    """Return the AUROC of each value of the secret against all others for the headline."""
    rng = stream(stage.spec.seed, stage.game.name, "bootstrap")
    estimates = scores.each_value(scored_trials(stage, reading), rng=rng)
    return [
        replace(like, metric=f"{scores.AUROC}: {name}", estimate=estimate, chance=0.5, curve=None)
        for name, estimate in zip(stage.game.value_names, estimates, strict=True)
    ]


def _most_at_risk(
    stage: GameStage, member: _Member, figures: Mapping[int | str, Sequence[Measurement]]
) -> list[Measurement]:
    """Return the figure of the user at most risk in user inference; empty in other games."""
    if stage.game.name != USER or stage.private.users is None:
        return []
    users = stage.private.users.cpu().numpy()
    user = users[stage.trials.rows[:, 0].cpu().numpy()]
    reading = member.sums[-1] if len(member.rounds) > 1 else member.rounds[-1]
    worst = most_at_risk(scored_trials(stage, reading), user)
    if worst is None:
        return []
    schema = stage.private.schema
    name = schema.users[worst.user] if schema is not None and schema.users else str(worst.user)
    return [
        replace(
            figures[reading.when][0],
            metric=scores.MOST_AT_RISK,
            estimate=worst.success,
            chance=stage.majority,
            curve=None,
            held_out=None,
            details={"user": name, "users compared": str(worst.of)},
        )
    ]


def _marked(one: Measurement, mark: str, member: _Member, reading: RunReading) -> Measurement:
    """Return a figure of the chosen reading as that of the adversary."""
    compared = ", ".join(f"{each.name} {each.auroc:.3f}" for each in member.preferred)
    details = {**one.details, "reading": reading.name, "AUROC on held-out shadow batches": compared}
    return replace(one, round=mark, details=details)
