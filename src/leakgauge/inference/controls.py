"""The controls of inference: a secret that leaks nowhere, and a planted leak."""

from collections.abc import Callable
from dataclasses import replace

from leakgauge.core.checks import InputError
from leakgauge.data.altered import marked_users, shuffled, shuffled_users, with_planted_secret
from leakgauge.data.source import Source
from leakgauge.inference.catalog import ATTRIBUTE, PROPERTY, USER
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.assessment import Controls, Variant
from leakgauge.runs.question import Prepared
from leakgauge.runs.spec import NONE

TRIALS = 1000
"""Maximum number of trials of a control: enough to detect a planted leak."""

_HIDDEN = (
    "; attribute inference runs without the attribute among the features, since the model would "
    "see even a shuffled one"
)


def controls(prepared: Prepared) -> Controls:
    """Return both controls, without defenses, which would hide the planted leak."""
    spec: InferenceSpec = prepared.spec
    cheap = replace(
        spec,
        defense=(NONE,),
        seeds=1,
        trials=min([TRIALS, *(spec.trials_of(ask) for ask in spec.ask)]),
    )
    return Controls(
        _tried(_placebo, cheap, prepared.source), _tried(_planted, cheap, prepared.source)
    )


def _tried(
    make: Callable[[InferenceSpec, Source], Variant], spec: InferenceSpec, source: Source
) -> Variant | str:
    try:
        return make(spec, source)
    except InputError as error:
        return str(error)


def _placebo(spec: InferenceSpec, source: Source) -> Variant:
    """Shuffle the secret; attributes become properties, as a model can learn a shuffled feature."""
    games = tuple(dict.fromkeys(PROPERTY if ask == ATTRIBUTE else ask for ask in spec.ask))
    words, data = [], source
    if set(games) != {USER}:
        users = spec.group if spec.by_user else None
        data = shuffled(data, spec.secret_column, users=users, seed=spec.seed)
        words.append(f"the values of {spec.secret!r} were shuffled")
    if USER in games:
        data = shuffled_users(data, spec.secret_of(USER), seed=spec.seed)
        words.append("the records were dealt to the users at random")
    changed = " and ".join(words) + (_HIDDEN if ATTRIBUTE in spec.ask else "")
    return Variant(replace(spec, ask=games), data, changed)


def _planted(spec: InferenceSpec, source: Source) -> Variant:
    words, data = [], source
    if set(spec.ask) != {USER}:
        data, said = with_planted_secret(data, spec.secret_column)
        words.append(said)
    if USER in spec.ask:
        data = marked_users(data, spec.secret_of(USER), seed=spec.seed)
        words.append("features of each record name its user")
    return Variant(spec, data, " and ".join(words))
