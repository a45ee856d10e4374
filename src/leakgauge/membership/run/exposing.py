"""Tests of single members: which of them do the attacks tell apart from the others?"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.defenses import none
from leakgauge.membership.adversaries.adversary import Floats, Needs
from leakgauge.membership.run.preparing import MembershipPrepared
from leakgauge.membership.run.scoring import AttackScores
from leakgauge.membership.run.target_model import SIDES, MemberRows, TargetModel
from leakgauge.membership.spec import PARTS, QUESTION
from leakgauge.results.measurements import HEADLINE, Measurement
from leakgauge.results.record_tests import DATA, SHARED, RecordTest, against_others
from leakgauge.results.statistics import Bools, Ints

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
    """Return the tests of single members under each defense.

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
    found = []
    for defense, head in leading.items():
        attack = defense, head.knowledge, head.adversary
        for number, model in enumerate(models[defense]):
            where = f", participant {number + 1}" if len(models[defense]) > 1 else ""
            tested: dict[str, tuple[str, Floats, Sequence[str]]] = {
                head.adversary: (head.knowledge, scored[attack][number].targets, SIDES[-1:])
            }
            if model.references:
                knows = STATIC if defense == none().name else ADAPTIVE
                tested |= {CALIBRATED: (knows, calibrated(model), SIDES)}
            found += [
                members_test(
                    scores,
                    *_records(prepared, model, sides),
                    adversary=f"{name}{where}",
                    defense=defense,
                    knowledge=knowledge,
                    versus=SECOND_TRAINING if prepared.spec.apart == PARTS else OTHERS,
                    numbering=MEMBERS_FIRST if prepared.snapshots else DATA,
                )
                for name, (knowledge, scores, sides) in tested.items()
            ]
    return found


def calibrated(model: TargetModel) -> Floats:
    """Return how much smaller each known record's loss is than at the reference models ``[n]``.

    Nothing is fitted to known records, so those that other attacks learn from are tested as well.
    """
    needs = Needs(references=len(model.references))
    seen = [model.side(name, needs) for name in SIDES]
    each = [-one.log_loss[:, -1].exp() - one.references.mean(1) for one in seen]
    return np.asarray(torch.cat(each).numpy(), np.float64)


def _records(
    prepared: MembershipPrepared, model: TargetModel, sides: Sequence[str]
) -> tuple[Bools, Ints, Ints | None]:
    """Return whether each record of some sides is a member, its row, and its user if known."""
    each: list[MemberRows] = [getattr(model, name) for name in sides]
    records = torch.cat([one.rows for one in each])
    users = prepared.data.rows(records).users
    return (
        np.concatenate([one.member for one in each]),
        prepared.rows_of(records),
        None if users is None else users.cpu().numpy(),
    )


def members_test(
    scores: Floats, member: Bools, rows: Ints, users: Ints | None, **names: str
) -> RecordTest:
    """Return the test of members against others by their scores.

    Records of one user share a test of the user's mean score, as they are not independent.

    Args:
        scores: scores of records ``[n]``, higher for members.
        member: whether each is a member ``[n]``; at least one of each kind.
        rows: rows of the records in the data ``[n]``.
        users: user of each record ``[n]``; None without users.
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
        family=np.empty(0, dtype=np.int64),
        dependence=SHARED,
        **names,
    )
