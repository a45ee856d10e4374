"""What the filters of a federation claim, what follows from their noise, and what to write instead.

It knows the filters of NVFlare 2.9 and the mods and strategies of Flower 1.41, and recognises a
filter of another package by the name of its class or by its arguments, which it says.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leakgauge.core.numbers import rounded_up
from leakgauge.defenses.claims import WITHOUT, Claim, sensitivity_for
from leakgauge.defenses.local_dp import FixedClipping, LocalDP
from leakgauge.defenses.percentile import PercentilePrivacy
from leakgauge.defenses.svt import SVT
from leakgauge.integrations.filter_arguments import ALIASES, PARAMETERS, SIDES, Arguments
from leakgauge.integrations.filter_words import (
    EQUAL,
    EVERY,
    MILLION,
    OF_SVT,
    OPEN,
    PUBLISHED,
    UNKNOWN,
    WITHOUT_NOISE,
    excluding,
    for_nvflare,
    percentile_does_nothing,
    too_small_for,
)
from leakgauge.integrations.switched_on import SwitchedOn
from leakgauge.privacy.estimate import noise_for_epsilon
from leakgauge.privacy.promises import Follows, GaussianRelease, Neighbours, SparseRelease

MEANT = 8.0
"""Epsilon of a whole training that advice is for, where a filter names none."""

DELTA = 1e-5

RELEASED = 1_000
"""Number of parameters of an update that is released to show what a filter gives away, at most."""


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

    def noise_for(self, epsilon: float) -> float:
        """Return the standard deviation, for a clip of 1, that keeps epsilon over all rounds."""
        moved = GaussianRelease(1.0, 1.0).sensitivity(self.near) * self.rounds**0.5
        return rounded_up(noise_for_epsilon(epsilon, moved, self.delta))


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
        leaving: whether it changes what a client sends at all.
        central: whether it protects the published model alone, not what the server sees.
        scope: the scope of a privacy policy to which it belongs; empty where there are no scopes.
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
    leaving: bool = True
    central: bool = False
    scope: str = ""
    defense: str = ""
    server_noise: float | None = None

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
    covers = switched.covers
    if name is None:
        found = FilterPromise(switched.name, why="not known", notes=(UNKNOWN,), known=False)
    elif name in WITHOUT_NOISE:
        found = FilterPromise(switched.name, why=WITHOUT_NOISE[name])
    else:
        arguments = Arguments(switched, name)
        found = _KNOWN[name](arguments, asked)
        covers = covers and arguments.filters_models
    lines = (*switched.notes, *assumed, *found.notes, *_large_delta(found, asked))
    return replace(
        found,
        filter=switched.name,
        notes=lines,
        covers=covers,
        leaving=switched.leaving,
        scope=switched.scope,
    )


def epsilon_kept(
    promises: Iterable[FilterPromise], scopes: Sequence[str] = (), *, published: bool = False
) -> Follows | None:
    """Return what all filters of a configuration together keep over the training.

    Of several filters the smallest epsilon counts, and of several scopes the largest.

    Args:
        promises: those of a configuration.
        scopes: all scopes of a privacy policy; empty without scopes.
        published: whether it is that of the published model, which the strategy's noise protects,
            too; else that of what a client sends.

    Returns:
        None where something leaves without differential privacy.
    """
    kept = []
    for scope in scopes or [""]:
        here = [
            one.training
            for one in promises
            if one.scope == scope and one.covers and (published or not one.central)
        ]
        found = [one for one in here if one is not None and math.isfinite(one.epsilon)]
        if not found:
            return None
        kept.append(min(found, key=lambda one: one.epsilon))
    return max(kept, key=lambda one: one.epsilon)


def _kind(switched: SwitchedOn) -> tuple[str | None, tuple[str, ...]]:
    """Return the known filter that it is, and what that assumes."""
    own = not switched.path.startswith(("nvflare.", "flwr.")) and "." in switched.path
    if switched.name in _KNOWN or switched.name in WITHOUT_NOISE:
        said = f"{switched.path} is assumed to be the {switched.name} of NVFlare or Flower"
        return switched.name, (said,) if own else ()
    names = {ALIASES.get(one, one) for one in switched.arguments}
    if set(PARAMETERS["LocalDpMod"]) <= names:
        said = f"{switched.path} is assumed to be Flower's LocalDpMod, by its arguments"
        return "LocalDpMod", (said,)
    return None, ()


def _large_delta(found: FilterPromise, asked: PromiseTerms) -> tuple[str, ...]:
    delta = None if found.claim is None else found.claim.delta
    if not delta or asked.units is None or delta <= 1 / asked.units:
        return ()
    return (f"its delta {delta:g} is above 1/{asked.units}, so it may publish a whole "
            f"{asked.near.unit}",)  # fmt: skip


def _gaussian(
    claim: Claim | None, release: GaussianRelease, delta: float, asked: PromiseTerms
) -> FilterPromise:
    one = release.follows(asked.near, delta)
    whole = release.follows(asked.near, delta, rounds=asked.rounds)
    return FilterPromise("", claim, one, whole)


def _local(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
    clip, sensitivity, epsilon, delta = map(arguments.number, PARAMETERS["LocalDpMod"])
    claim = Claim(epsilon, delta)
    if sensitivity == 0:
        why, bare = "its sensitivity is 0, so it adds no noise", FixedClipping(clip).name
        return FilterPromise("", claim, why=why, defense=bare)
    filter_ = LocalDP(clip, sensitivity, epsilon, delta)
    found = _gaussian(claim, GaussianRelease(clip, filter_.noise_std), delta, asked)
    notes = [OPEN]
    if sensitivity < clip:
        notes.insert(0, too_small_for(clip, sensitivity, epsilon))
    instead = ""
    if found.training is not None and found.training.epsilon > 1.01 * epsilon:
        write = sensitivity_for(claim, clip, asked.near, rounds=asked.rounds)
        instead = f"sensitivity={write:g}"
    return replace(found, instead=instead, notes=tuple(notes), defense=filter_.name)


def _sparse(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
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
        OPEN,
        *arguments.kinds(),
    ]
    if asked.parameters is None:
        notes.insert(0, f"a model of {MILLION:,} parameters is assumed; --parameters sets another")
    instead = (
        f"epsilon={share * fraction / 2:.3g}, epsilon_release={share / 2:.3g}; each value then has "
        f"noise {4 * release.sent / share:.2g} times its largest size, so better "
        f"{for_nvflare(MEANT, asked.noise_for(MEANT), asked.delta)}"
    )
    small = replace(release, coordinates=min(parameters, RELEASED))
    defense = SVT(fraction, epsilon, small.each, arguments.number("gamma"), arguments.number("tau"))
    return FilterPromise(
        "", Claim(epsilon, 0.0), one, whole, "", instead, tuple(notes), defense=defense.name
    )


def _percentile(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
    percentile, gamma = arguments.number("percentile"), arguments.number("gamma")
    nothing = percentile_does_nothing(percentile, gamma)
    defense = "none" if nothing else PercentilePrivacy(percentile, gamma).name
    found = _without(nothing or WITHOUT["percentile-privacy"], arguments, asked)
    return replace(found, defense=defense)


def _exclude(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
    return _without(excluding(arguments.values["exclude_vars"]), arguments, asked)


def _without(why: str, arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
    instead = for_nvflare(MEANT, asked.noise_for(MEANT), asked.delta)
    return FilterPromise("", why=why, instead=instead, notes=(OPEN, *arguments.kinds()))


def _clipping(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
    claim = Claim(MEANT, asked.delta)
    write = sensitivity_for(claim, 1.0, asked.near, rounds=asked.rounds)
    instead = (
        f"LocalDpMod(clipping_norm=1, sensitivity={write:g}, epsilon={MEANT:g}, "
        f"delta={asked.delta:g}) after it, to hide updates from the server"
    )
    bare = FixedClipping(1.0).name
    return FilterPromise("", why=WITHOUT["fixed-clipping"], instead=instead, defense=bare)


def _central(clip: str) -> Callable[[Arguments, PromiseTerms], FilterPromise]:
    def found(arguments: Arguments, asked: PromiseTerms) -> FilterPromise:
        multiplier, norm = arguments.number("noise_multiplier"), arguments.number(clip)
        clients = arguments.number("num_sampled_clients")
        if multiplier == 0:
            none = "its noise multiplier is 0, so it adds no noise"
            return FilterPromise("", why=none, central=True, defense=FixedClipping(norm).name)
        promised = _gaussian(None, GaussianRelease(norm, multiplier * norm), asked.delta, asked)
        instead = ""
        if promised.training is not None and promised.training.epsilon > MEANT:
            least = asked.noise_for(MEANT)
            instead = f"noise_multiplier={least:g}, for epsilon {MEANT:g} of the training"
        notes = (PUBLISHED, EQUAL.format(clients=f"{clients:g}"), EVERY)
        return replace(
            promised,
            instead=instead,
            notes=notes,
            central=True,
            defense=FixedClipping(norm).name,
            server_noise=multiplier,
        )

    return found


_KNOWN: Mapping[str, Callable[[Arguments, PromiseTerms], FilterPromise]] = {
    OF_SVT: _sparse,
    "PercentilePrivacy": _percentile,
    "ExcludeVars": _exclude,
    "LocalDpMod": _local,
    "fixedclipping_mod": _clipping,
    "adaptiveclipping_mod": _clipping,
    **{f"DifferentialPrivacy{one}SideFixedClipping": _central("clipping_norm") for one in SIDES},
    **{
        f"DifferentialPrivacy{one}SideAdaptiveClipping": _central("initial_clipping_norm")
        for one in SIDES
    },
}
"""What each known filter promises."""
