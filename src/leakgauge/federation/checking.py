"""Checks of the settings for kept updates."""

from leakgauge.core.checks import require
from leakgauge.federation.spec import ATTACKS, OVER_ROUNDS, FederationSpec
from leakgauge.integrations.training_settings import LocalTraining
from leakgauge.inversion.methods import refuse_tables_only
from leakgauge.membership.catalog import SHADOW, knowledge_of
from leakgauge.runs.spec import check_bounds


def check(spec: FederationSpec) -> None:
    """Raise an error for settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings contradict each
            other.
    """
    check_bounds(spec)
    require(
        any(spec.kept) and spec.task is not None,
        "this question is about kept updates: leakgauge federation DIR --task MODULE:FUNCTION",
    )
    require(
        spec.local_steps is None or spec.local_epochs is None,
        "--local-steps and --local-epochs name two lengths of a round; leave one out",
    )
    require(
        not (spec.simulate and spec.no_simulate),
        "--simulate and --no-simulate contradict each other; leave one out",
    )
    require(
        spec.momentum is None or spec.momentum < 1,
        f"--momentum is {spec.momentum}; expected a number below 1",
    )
    if spec.local_optimizer is not None:
        LocalTraining(optimizer=spec.local_optimizer, momentum=spec.momentum)
    refuse_tables_only(spec.method, "single gradients; choose")
    single = [one for one in spec.adversary if one not in OVER_ROUNDS]
    require(
        bool(single) or not spec.adversary,
        f"--adversary {' and '.join(spec.adversary)} attacks all rounds together; name an attack "
        f"on single updates too, such as {', '.join(ATTACKS)}",
    )
    for one in single:
        require(
            knowledge_of(one) != SHADOW,
            f"--adversary {one} trains its own models; choose another for kept updates",
        )
