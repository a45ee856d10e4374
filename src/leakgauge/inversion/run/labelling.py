"""How an attacker gets the labels, as the setting ``labels`` names it."""

from typing import cast, get_args

from leakgauge.inversion.labels.inference import Method
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.words import INFERRED, KNOWN

_DEALT_ANYHOW = (
    "the labels were inferred, which does not tell at which local step each was used: the "
    "simulation took them in ascending order, which is most likely wrong; leave out --simulate, or "
    "grant the labels with --labels known"
)


def method_of(labels: str) -> Method:
    """Return how ``infer_labels`` infers what the setting names.

    >>> method_of("inferred"), method_of("gradinversion")
    ('auto', 'gradinversion')
    """
    return cast(Method, labels) if labels in get_args(Method) else "auto"


def are_searched_for(labels: str, settings: Settings) -> bool:
    """Return whether the search finds the labels together with the records."""
    return labels == INFERRED and settings.joint_labels


def dealing_warnings(labels: str, settings: Settings, *, simulate: bool) -> tuple[str, ...]:
    """Return why inferred labels do not go with a simulation of the local steps; often nothing.

    Inference gives the labels of a whole update, and a simulation needs those of each step.

    Args:
        labels: the setting.
        settings: of the search.
        simulate: whether the steps are simulated.

    References:
        Xu et al., AGIC, SRDS 2022, section VI-B.
    """
    inferred = labels != KNOWN and not are_searched_for(labels, settings)
    return (_DEALT_ANYHOW,) if simulate and inferred else ()
