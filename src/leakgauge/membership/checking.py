"""Checks of settings, and the attacks and defenses that they name."""

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.membership.adversaries.adversary import MembershipAttack
from leakgauge.membership.catalog import SHADOW, knowledge_of, parse_attack
from leakgauge.membership.spec import ALL, ASCENT, GLOBAL, PASSIVE, RATE, MembershipSpec
from leakgauge.runs.spec import NONE, check_bounds
from leakgauge.training.catalog import own_rate, parse_optimizer
from leakgauge.training.participant import refuse_learned


def check(spec: MembershipSpec) -> None:
    """Raise an error for settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings contradict each
            other.
    """
    check_bounds(spec)
    attacks_of(spec)
    defenses_of(spec)
    parse_optimizer(spec.optimizer, lr=spec.lr)
    require(
        not spec.drops or own_rate(spec.optimizer) is None,
        f"--optimizer {spec.optimizer} has its own rate, which drops cannot change; name the "
        "rate by --lr",
    )
    _check_checkpoint(spec)
    _check_federation(spec)
    _check_fine_tuning(spec)
    _check_shadows(spec)
    require(
        spec.lr == RATE or own_rate(spec.optimizer) is None,
        f"--lr {spec.lr:g} and --optimizer {spec.optimizer} name two learning rates; leave one out",
    )


def _check_federation(spec: MembershipSpec) -> None:
    """Raise an error for federation settings that are missing a federation or contradict it."""
    if spec.participants == 1:
        alone = (spec.attacker, spec.strategy, spec.observed) == (GLOBAL, PASSIVE, ())
        require(
            alone and spec.local_epochs == 1,
            "attacker, strategy, observed and local_epochs are about a federation; add "
            "--set membership.participants=4",
        )
        return
    require(not spec.checkpoint, "a CHECKPOINT is trained; leave participants out")
    require(
        not spec.drops and not spec.best_epoch,
        "drops and best_epoch are about a central training; leave participants out",
    )
    require(
        spec.attacker == GLOBAL or spec.strategy in (PASSIVE, ASCENT),
        f"a local attacker cannot {spec.strategy}: the server alone can isolate a participant; "
        "set attacker=global, or strategy=ascent",
    )
    last = max(spec.observed, default=1)
    require(
        last <= spec.rounds,
        f"observed names round {last} of {spec.rounds}; lower it, or raise --rounds",
    )


def _check_fine_tuning(spec: MembershipSpec) -> None:
    """Raise an error for settings of fine-tuning without it, or with another training."""
    require(
        spec.fine_tune < 1 and spec.snapshots < 3,
        f"fine_tune is {spec.fine_tune:g} and snapshots {spec.snapshots}; expected a share "
        "below 1, and 1 or 2",
    )
    if spec.fine_tune == 0:
        require(
            spec.snapshots == 1 and spec.apart == ALL,
            "snapshots and apart are about a fine-tuned model; add --set membership.fine_tune=0.4",
        )
        return
    require(
        spec.participants == 1 and not spec.checkpoint,
        "fine_tune is about a central training; leave participants and a CHECKPOINT out",
    )


def _check_shadows(spec: MembershipSpec) -> None:
    """Raise an error for attacks that need shadow records if none are available."""
    shadow = next((one for one in spec.adversaries if knowledge_of(one) == SHADOW), None)
    require(
        shadow is None or not spec.is_special,
        f"attack {shadow!r} trains its own models on other records, once and centrally; "
        "name another --adversary for a CHECKPOINT, a federation or fine-tuning",
    )


def _check_checkpoint(spec: MembershipSpec) -> None:
    """Raise an error for settings that do not fit a given model."""
    given = (spec.checkpoint, spec.members, spec.non_members)
    if not any(given):
        return
    require(
        all(given) and spec.task is not None,
        "a CHECKPOINT, --members, --non-members and --task go together; give all of them",
    )
    require(
        set(spec.defense) == {NONE},
        "a defense changes the training, and a CHECKPOINT is trained; leave --defense out",
    )


def attacks_of(spec: MembershipSpec) -> list[MembershipAttack]:
    """Return the attacks, in the order of the settings.

    Raises:
        InputError: one is unknown or repeated.
    """
    attacks = [parse_attack(text) for text in spec.adversaries]
    names = [one.name for one in attacks]
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    return attacks


def defenses_of(spec: MembershipSpec) -> list[Defense]:
    """Return the defenses, each once.

    Raises:
        InputError: none is named, one is unknown, or one needs the secret of a batch.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    defenses = {}
    for text in spec.defense:
        one = parse_defense(text, batch_size=spec.batch_size)
        refuse_learned(one)
        defenses[one.name] = one
    return list(defenses.values())
