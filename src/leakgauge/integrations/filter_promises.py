"""What the filters of a federation claim, what follows from their noise, and what to write instead.

It knows the filters of NVFlare 2.9 and the mods and strategies of Flower 1.41, and recognises a
filter of another package by the name of its class or by its arguments, which it says.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.core.numbers import read_number
from leakgauge.defenses.claims import WITHOUT, Claim, sensitivity_for
from leakgauge.defenses.local_dp import FixedClipping, LocalDP
from leakgauge.defenses.percentile import PercentilePrivacy
from leakgauge.defenses.svt import SVT
from leakgauge.integrations.filter_files import SwitchedOn
from leakgauge.privacy.estimate import noise_for_epsilon
from leakgauge.privacy.promises import Follows, GaussianRelease, Neighbours, SparseRelease

MEANT = 8.0
"""Epsilon of a whole training that advice is for, where a filter names none."""

DELTA = 1e-5
SCALARS = "arrays that are a single number, such as counters of BatchNorm, leave as they are"


@dataclass(frozen=True)
class PromiseTerms:
    """The terms under which promises are read.

    Attributes:
        near: unit of privacy and relation of neighbours.
        rounds: number of rounds of the training.
        delta: delta for filters that name none.
        parameters: number of parameters of the model; None if unknown.
        units: number of clients or records that are protected; None if unknown.
    """

    near: Neighbours = field(default_factory=Neighbours)
    rounds: int = 1
    delta: float = DELTA
    parameters: int | None = None
    units: int | None = None


@dataclass(frozen=True)
class FilterPromise:
    """What one filter promises.

    Attributes:
        filter: name of its class.
        claim: what its parameters say of one round; None if they name no epsilon.
        one: what follows for one round; None without differential privacy.
        training: the same for all rounds.
        why: why nothing follows; empty otherwise.
        instead: what to write for the epsilon that was meant; empty where nothing is wrong.
        notes: what was assumed, and what else is wrong, a sentence each.
        known: whether the filter is known.
        covers: whether it changes everything that a client sends of a model.
        defense: the same filter as ``parse_defense`` reads it; empty where there is none.
        server_noise: noise multiplier of the server after it; None without.
    """

    filter: str
    claim: Claim | None = None
    one: Follows | None = None
    training: Follows | None = None
    why: str = ""
    instead: str = ""
    notes: tuple[str, ...] = ()
    known: bool = True
    covers: bool = True
    defense: str = ""
    server_noise: float | None = None

    def keeps(self, most: float) -> bool:
        """Return whether it keeps the epsilon of the training at or below a limit."""
        return self.covers and self.training is not None and self.training.epsilon <= most

    @property
    def holds(self) -> bool:
        """Whether the claim follows from the noise of one round, up to 1 %."""
        if self.claim is None or self.one is None:
            return self.one is not None
        return self.one.epsilon <= 1.01 * self.claim.epsilon


def promise_of(switched: SwitchedOn, asked: PromiseTerms | None = None) -> FilterPromise:
    """Return what a filter of a configuration promises.

    Args:
        switched: the filter.
        asked: unit, relation, rounds and sizes; None for a client that is replaced, in one round.

    Raises:
        InputError: an argument is unknown, missing or no number.

    >>> flip = {"clipping_norm": 1, "sensitivity": 1e-4, "epsilon": 10, "delta": 1e-5}
    >>> found = promise_of(SwitchedOn("LocalDpMod", "LocalDpMod", flip))
    >>> found.claim.epsilon, f"{found.one.epsilon:.2e}", found.instead
    (10.0, '8.52e+08', 'sensitivity=2.07')
    """
    asked = asked or PromiseTerms()
    name, assumed = _kind(switched)
    if name is None:
        notes = (*switched.notes, "the filter is not known here, so nothing is said of it")
        return FilterPromise(switched.name, why="not known", notes=notes, known=False)
    found = _KNOWN[name](_Arguments(switched, name), asked)
    lines = (*assumed, *switched.notes, *found.notes, *_large_delta(found, asked))
    return replace(found, filter=switched.name, notes=lines, covers=switched.covers)


def _kind(switched: SwitchedOn) -> tuple[str | None, tuple[str, ...]]:
    """Return the known filter that it is, and what that assumes."""
    own = not switched.path.startswith(("nvflare.", "flwr.")) and "." in switched.path
    if switched.name in _KNOWN:
        said = f"{switched.path} is assumed to be the {switched.name} of NVFlare or Flower"
        return switched.name, (said,) if own else ()
    names = {_ALIASES.get(one, one) for one in switched.arguments}
    if set(_PARAMETERS["LocalDpMod"]) <= names:
        said = f"{switched.path} is assumed to be Flower's LocalDpMod, by its arguments"
        return "LocalDpMod", (said,)
    return None, ()


def _large_delta(found: FilterPromise, asked: PromiseTerms) -> tuple[str, ...]:
    delta = None if found.claim is None else found.claim.delta
    if not delta or asked.units is None or delta <= 1 / asked.units:
        return ()
    return (f"its delta {delta:g} is above 1/{asked.units}, so it may publish a whole "
            f"{asked.near.unit}",)  # fmt: skip


_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "SVTPrivacy": {
        "fraction": 0.1, "epsilon": 0.1, "noise_var": 0.1, "gamma": 1e-5, "tau": 1e-6,
        "data_kinds": None, "replace": True, "epsilon_threshold": None, "epsilon_query": None,
        "epsilon_release": None,
    },
    "PercentilePrivacy": {"percentile": 10, "gamma": 0.01, "data_kinds": None},
    "ExcludeVars": {"exclude_vars": None, "data_kinds": None},
    "LocalDpMod": dict.fromkeys(("clipping_norm", "sensitivity", "epsilon", "delta"),
                                inspect.Parameter.empty),
    "fixedclipping_mod": {},
    "adaptiveclipping_mod": {},
    **{
        f"DifferentialPrivacy{side}SideFixedClipping": dict.fromkeys(
            ("noise_multiplier", "clipping_norm", "num_sampled_clients"), inspect.Parameter.empty
        )
        for side in ("Client", "Server")
    },
    **{
        f"DifferentialPrivacy{side}SideAdaptiveClipping": {
            **dict.fromkeys(("noise_multiplier", "num_sampled_clients"), inspect.Parameter.empty),
            "initial_clipping_norm": 0.1, "target_clipped_quantile": 0.5, "clip_norm_lr": 0.2,
            "clipped_count_stddev": None,
        }
        for side in ("Client", "Server")
    },
}  # fmt: skip
"""The arguments of the known filters with their defaults; ``empty`` where users must give one."""

_ALIASES = {"clip": "clipping_norm", "clip_norm": "clipping_norm", "max_norm": "clipping_norm"}
"""Names of the clip in filters that copy Flower's."""


class _Arguments:
    """The arguments of a filter in a file, with the defaults of its class."""

    def __init__(self, switched: SwitchedOn, name: str) -> None:
        own = switched.name == name
        known = _PARAMETERS[name]
        self.path = switched.path
        self.given: dict[str, Any] = {}
        for key, value in switched.arguments.items():
            plain = key if own else _ALIASES.get(key, key)
            require(
                plain in known or not own,
                f"{switched.path} has no argument {key!r}{nearest(key, known)}",
            )
            self.given[plain] = value
        self._values = {**known, **self.given}

    def number(self, key: str) -> float:
        """Return a number of the file, or its default.

        Raises:
            InputError: it is missing, or no number.
        """
        value = self._values[key]
        if value is inspect.Parameter.empty:
            raise InputError(f"{self.path} lacks {key}; write its value")
        if isinstance(value, str):  # YAML reads 1e-4 as text
            return float(read_number(value, float, f"{self.path}: {key}"))
        require(
            isinstance(value, int | float) and not isinstance(value, bool),
            f"{self.path}: {key} is {value!r}; expected a number",
        )
        return float(value)

    def optional(self, key: str) -> float | None:
        """Return a number, or None where the file has none."""
        return None if self._values[key] is None else self.number(key)

    def kinds(self) -> tuple[str, ...]:
        """Return a note where the filter is for some kinds of data only."""
        kinds = self._values.get("data_kinds")
        return (f"it filters {kinds} alone; other data leave as they are",) if kinds else ()


def _gaussian(
    claim: Claim | None, release: GaussianRelease, delta: float, asked: PromiseTerms
) -> FilterPromise:
    one = release.follows(asked.near, delta)
    whole = release.follows(asked.near, delta, rounds=asked.rounds)
    return FilterPromise("", claim, one, whole)


def _local(arguments: _Arguments, asked: PromiseTerms) -> FilterPromise:
    clip, sensitivity, epsilon, delta = map(arguments.number, _PARAMETERS["LocalDpMod"])
    if sensitivity == 0:
        claim, bare = Claim(epsilon, delta), FixedClipping(clip).name
        why = "its sensitivity is 0, so it adds no noise"
        return FilterPromise("", claim, why=why, defense=bare)
    filter_ = LocalDP(clip, sensitivity, epsilon, delta)
    claim = Claim(epsilon, delta)
    found = _gaussian(claim, GaussianRelease(clip, filter_.noise_std), delta, asked)
    notes = [SCALARS]
    if sensitivity < clip:
        same = f"{epsilon * clip / sensitivity:,.6g}"
        notes.insert(0, f"its sensitivity {sensitivity:g} is below its clip {clip:g}; at the clip "
                     f"its own formula gives epsilon {same}")  # fmt: skip
    instead = ""
    if found.training is not None and found.training.epsilon > 1.01 * epsilon:
        write = sensitivity_for(claim, clip, asked.near, rounds=asked.rounds)
        instead = f"sensitivity={write:g}"
    return replace(found, instead=instead, notes=tuple(notes), defense=filter_.name)


def _sparse(arguments: _Arguments, asked: PromiseTerms) -> FilterPromise:
    epsilon, fraction = arguments.number("epsilon"), arguments.number("fraction")
    noise, total = arguments.number("noise_var"), arguments.optional("epsilon_release")
    parameters = asked.parameters or MILLION
    threshold, query = map(arguments.optional, ("epsilon_threshold", "epsilon_query"))
    threshold = epsilon - query if threshold is None and query is not None else threshold
    release = SparseRelease(parameters, fraction, epsilon, noise, total, threshold)
    one, whole = (release.follows(asked.near, 0.0, rounds=n) for n in (1, asked.rounds))
    composed = release.follows(asked.near, asked.delta, rounds=asked.rounds)
    share = epsilon / asked.rounds
    notes = [
        f"its noise on {release.sent:,} values costs epsilon {release.sent * release.each:,.6g} a "
        f"round, beside the {epsilon:g} of their choice",
        f"at delta {asked.delta:g} the epsilon of all rounds is at most {composed.epsilon:,.5g}",
        SCALARS,
        *arguments.kinds(),
    ]
    if asked.parameters is None:
        notes.insert(0, f"a model of {MILLION:,} parameters is assumed; --parameters sets another")
    instead = (
        f"epsilon={share * fraction / 2:.3g}, epsilon_release={share / 2:.3g}; each value then has "
        f"noise {4 * release.sent / share:.2g} times its largest size, so use LocalDpMod or noise "
        "of the server"
    )
    small = replace(release, coordinates=min(parameters, RELEASED))
    defense = SVT(fraction, epsilon, small.each, arguments.number("gamma"), arguments.number("tau"))
    return FilterPromise(
        "", Claim(epsilon, 0.0), one, whole, "", instead, tuple(notes), defense=defense.name
    )


MILLION = 1_000_000

RELEASED = 1_000
"""Number of parameters of an update that is released to show what a filter gives away, at most."""


def _without(
    word: str, defense: Callable[[_Arguments], str] = lambda _: ""
) -> Callable[[_Arguments, PromiseTerms], FilterPromise]:
    def found(arguments: _Arguments, asked: PromiseTerms) -> FilterPromise:
        write = sensitivity_for(Claim(MEANT, asked.delta), 1.0, asked.near, rounds=asked.rounds)
        instead = (
            f"LocalDpMod(clipping_norm=1, sensitivity={write:g}, epsilon={MEANT:g}, "
            f"delta={asked.delta:g})"
        )
        notes = (SCALARS, *arguments.kinds())
        return FilterPromise("", why=word, instead=instead, notes=notes, defense=defense(arguments))

    return found


def _percentile(arguments: _Arguments) -> str:
    return PercentilePrivacy(arguments.number("percentile"), arguments.number("gamma")).name


def _clipping(arguments: _Arguments, asked: PromiseTerms) -> FilterPromise:
    return FilterPromise(
        "", why=WITHOUT["fixed-clipping"],
        instead="DifferentialPrivacyClientSide... with a noise multiplier on the server",
        defense=FixedClipping(1.0).name,
    )  # fmt: skip


def _central(clip: str) -> Callable[[_Arguments, PromiseTerms], FilterPromise]:
    def found(arguments: _Arguments, asked: PromiseTerms) -> FilterPromise:
        multiplier, norm = arguments.number("noise_multiplier"), arguments.number(clip)
        clipping = FixedClipping(norm).name
        if multiplier == 0:
            why = "its noise multiplier is 0, so it adds no noise"
            return FilterPromise("", why=why, defense=clipping)
        promised = _gaussian(None, GaussianRelease(norm, multiplier * norm), asked.delta, asked)
        notes = (
            "it is for the published model: the server sees the updates before it adds noise",
            "every client is taken to be in every round; a smaller sample is not counted",
        )
        instead = ""
        if promised.training is not None and promised.training.epsilon > MEANT:
            moved = GaussianRelease(1.0, 1.0).sensitivity(asked.near) * asked.rounds**0.5
            least = noise_for_epsilon(MEANT, moved, asked.delta)
            instead = f"noise_multiplier={_up(least):g} for epsilon {MEANT:g} of the training"
        return replace(
            promised, instead=instead, notes=notes, defense=clipping, server_noise=multiplier
        )

    return found


def _up(value: float) -> float:
    """Return a number with three digits, rounded up."""
    return float(f"{value * 1.005:.3g}")


_KNOWN: Mapping[str, Callable[[_Arguments, PromiseTerms], FilterPromise]] = {
    "SVTPrivacy": _sparse,
    "PercentilePrivacy": _without(WITHOUT["percentile-privacy"], _percentile),
    "ExcludeVars": _without("it leaves arrays out, and adds no noise"),
    "LocalDpMod": _local,
    "fixedclipping_mod": _clipping,
    "adaptiveclipping_mod": _clipping,
    "DifferentialPrivacyClientSideFixedClipping": _central("clipping_norm"),
    "DifferentialPrivacyServerSideFixedClipping": _central("clipping_norm"),
    "DifferentialPrivacyClientSideAdaptiveClipping": _central("initial_clipping_norm"),
    "DifferentialPrivacyServerSideAdaptiveClipping": _central("initial_clipping_norm"),
}
"""What each known filter promises."""
