"""Tests of single members: which of them do the attacks tell apart from the others?"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.defenses import none
from leakgauge.membership.adversaries.adversary import Floats, Needs
from leakgauge.membership.run.preparing import MembershipPrepared
from leakgauge.membership.run.scoring import AttackScores
from leakgauge.membership.run.target_model import TargetModel
from leakgauge.membership.spec import PARTS, QUESTION
from leakgauge.results.measurements import HEADLINE, Measurement
from leakgauge.results.record_tests import DATA, SHARED, RecordTest, against_others
from leakgauge.results.statistics import Ints

CALIBRATED = "loss against reference models"
"""Name of the test that takes each record's own difficulty into account."""

OTHERS, SECOND_TRAINING = "records outside the training", "records of the second training"
MEMBERS_FIRST = "members first, then the others"


def record_tests(
    prepared: MembershipPrepared,
    measurements: Sequence[Measurement],
    scored: Mapping[tuple[str, str, str], Sequence[AttackScores]],
    models: Mapping[str, Sequence[TargetModel]],
) -> list[RecordTest]:
    """Return the tests of the target members under each defense.

    One is by the headline's attack, which validation records chose. The other compares each
    record's loss with that at reference models, where the run has some: an average attack is surest
    of easy records, this one of those that the model would not know without them.

    Args:
        prepared: settings and data.
        measurements: figures with their headline.
        scored: scores of each attack by defense, knowledge and name.
        models: attacked models by defense.

    References:
        Watson, Guo, Cormode and Sablayrolles, On the importance of difficulty calibration in
        membership inference attacks, ICLR 2022.
    """
    leading = {one.defense: one for one in measurements if one.round == HEADLINE}  # adaptive last
    return [
        test
        for defense, head in leading.items()
        for number, model in enumerate(models[defense])
        for test in _of_model(
            prepared,
            model,
            {head.adversary: scored[defense, head.knowledge, head.adversary][number].targets},
            (defense, head.knowledge),
            f", participant {number + 1}" if len(models[defense]) > 1 else "",
        )
    ]


def _of_model(
    prepared: MembershipPrepared,
    model: TargetModel,
    scores: dict[str, Floats],
    under: tuple[str, str],
    where: str,
) -> Iterator[RecordTest]:
    """Yield the tests of one model's members, by the scores of its targets ``[n]``."""
    defense, _ = under
    if model.references:
        scores |= {CALIBRATED: calibrated(model)}
    member, rows = model.targets.member, prepared.rows_of(model.targets.rows)
    users = prepared.data.rows(model.targets.rows).users
    unit = None if users is None else users.cpu().numpy()
    for name, each in scores.items():
        knows = ADAPTIVE if name == CALIBRATED and defense != none().name else under[1]
        yield members_test(
            each,
            member,
            rows,
            unit,
            adversary=f"{name}{where}",
            defense=defense,
            knowledge=STATIC if defense == none().name else knows,
            versus=SECOND_TRAINING if prepared.spec.apart == PARTS else OTHERS,
            numbering=MEMBERS_FIRST if prepared.snapshots else DATA,
        )


def calibrated(model: TargetModel) -> Floats:
    """Return how much smaller each target's loss is than at the reference models ``[n]``."""
    seen = model.side("targets", Needs(references=len(model.references)))
    return np.asarray(
        -np.exp(seen.log_loss[:, -1].numpy()) - seen.references.mean(1).numpy(), np.float64
    )


def members_test(
    scores: Floats, member: np.ndarray, rows: Ints, users: Ints | None, **names: str
) -> RecordTest:
    """Return the test of members against others by their scores.

    Records of one user share a test of the user's mean score, as they are not independent.

    Args:
        scores: scores of the targets ``[n]``, higher for members.
        member: whether each is a member ``[n]``; at least one of each kind.
        rows: rows of the targets in the data ``[n]``.
        users: user of each target ``[n]``; None without users.
        names: words of the test.
    """
    unit = np.arange(len(scores)) if users is None else np.unique(users, return_inverse=True)[1]
    mean = np.bincount(unit, weights=scores) / np.bincount(unit)
    inside = unit[member]
    others = mean[np.unique(unit[~member])]
    p_value, excess = against_others(mean[inside], others)
    return RecordTest(
        ask=QUESTION,
        rows=rows[member],
        p_value=p_value,
        excess=excess,
        others=np.full(len(inside), len(others)),
        figure=np.empty(0),
        guess=np.empty(0),
        unit=np.empty(0, dtype=np.int64) if users is None else inside,
        dependence=SHARED,
        **names,
    )
