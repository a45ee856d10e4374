"""How likely it is that two gradients are of one person: what the attacks on persons share.

Gradients are reduced to principal components as they are made. An attack learns a *likeness* of
reduced gradients from the shadow persons'; softmax over the m candidates of a trial makes it a
posterior. What the likeness is worth shows on shadow persons whom it was not learnt from: they are
parted into folds, and each fold plays the game with a likeness that is learnt from the others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.pca_forest import Projection
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import Flat
from leakgauge.inference.games.candidates import CandidateAdversary, Candidates
from leakgauge.inference.games.users import part, records_of
from leakgauge.training.observation import sent_gradients

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AXES_FROM = 512
"""Batches that the principal axes are learnt from: their gradients are held at once."""

LEAST_EACH = 4
"""Batches of each shadow person that are learnt from, at least."""

REHEARSED = 600
"""Batches of held-out shadow persons that are judged."""

Likeness = Callable[[Floats, Floats], Floats]
"""Reduced gradients, seen ``[n, k]`` and held ``[n, m, k]`` -> log-likelihoods ``[n, m]``, up to a
constant a row."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """Reduced gradients of shadow batches, each of one person.

    Attributes:
        seen: as they are sent ``[n, k]``; clean, without the defense's Gaussian noise ``[n, k]``.
        person: ``[n]``.
        resampling: B over the mean number of a person's records: what drawing them anew changes
            in a batch, relative to what it changes in the person's mean.
    """

    seen: Floats
    clean: Floats
    person: Ints
    resampling: float

    def without(self, persons: Ints) -> "Lesson":
        """What is left when some persons are held out."""
        rest = ~np.isin(self.person, persons)
        return replace(self, seen=self.seen[rest], clean=self.clean[rest], person=self.person[rest])


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The game among the shadow persons.

    Attributes:
        seen: observed batches ``[n, k]``, of the persons ``person`` ``[n]``.
        held: the candidate batch of each shadow person ``[U, k]``, of other records.
        seed: parts the persons into folds and draws candidates.
    """

    seen: Floats
    person: Ints
    held: Floats
    seed: int


@dataclass(frozen=True, eq=False)
class FittedLikeness(CandidateAdversary):
    """A likeness that was learnt.

    Attributes:
        settings: of the attack.
        view: reduces gradients.
        likeness: of reduced gradients.
        slope: of its log-likelihoods.
        log_prior: ``[m]``.
        held_out: what such likenesses said of held-out shadow persons, after the slope; None where
            none was asked.
    """

    settings: object
    view: Projection
    likeness: Likeness
    slope: float
    log_prior: Floats
    held_out: HeldOut | None = None

    @property
    def details(self) -> str:
        """The settings and the slope."""
        return f"{self.settings!r}, slope {self.slope:.3g}"

    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """``[n, m]`` for gradients with leaves ``[n, *p]``."""
        here, there = (self.view(grads).cpu().numpy() for grads in (seen, candidates.grads))
        said = self.likeness(here, there[candidates.index.cpu().numpy()])
        return with_prior(self.slope * said, self.log_prior)


def observe(
    shadow: Shadow, *, batches: int, components: int, rng: np.random.Generator
) -> tuple[Projection, Lesson]:
    """Bootstrapped shadow batches, as many of each person, on their principal axes.

    There are ``batches``, or ``LEAST_EACH`` a person where persons are many: how much a person's
    gradients vary shows on no fewer. The axes are learnt without the Gaussian noise of the
    shadow's defense.
    """
    rows, person = shadow.draw(max(batches, LEAST_EACH * shadow.values), rng=rng)
    clean = replace(shadow, defense=shadow.defense.without_noise())
    first = torch.cat([Flat()(grads) for grads in _gradients(clean, rows[:AXES_FROM])])
    view = Projection.learn(first, components, rng=rng)
    # the view flattens what it is given, one leaf or many; in parts, since it also makes copies
    again = ({"": part} for part in torch.split(first, 64))
    features = map(view, chain(again, _gradients(clean, rows[AXES_FROM:])))
    reduced = torch.cat(list(features)).cpu().numpy()
    noisy = clean.defense != shadow.defense
    seen = _reduced(view, shadow, rows) if noisy else reduced
    records = len(shadow.data) / shadow.values
    return view, Lesson(seen, reduced, person, shadow.batch_size / records)


def check_persons(shadow: Shadow, *, candidates: int, folds: int) -> None:
    """Refuse shadow persons with whom the game cannot be rehearsed.

    Raises:
        InputError: one has a single record, or a fold would have fewer than m persons.
    """
    each = np.bincount(shadow.data.secrets[shadow.secret].cpu().numpy())
    lone, persons = int((each == 1).sum()), len(each)
    require(
        lone == 0,
        f"{lone} of {persons} shadow persons have one record only, which makes no two batches "
        "of other records; leave these persons out",
    )
    _require_enough(persons, candidates, folds)


def rehearse(shadow: Shadow, view: Projection, *, batches: int = REHEARSED) -> Rehearsal:
    """Play the game's batches among the shadow persons, each one's records parted in two.

    Batches depend on the shadow and its ``held_out_seed`` alone, not on the attack. A
    person with few records gives the same one several times.
    """
    rng = stream(shadow.held_out_seed, "rehearsal")
    codes = shadow.data.secrets[shadow.secret].cpu().numpy()
    halves = [part(rows, rng) for rows in records_of(codes)]
    person = rng.permutation(np.arange(batches) % len(halves))

    def batch(rows: Ints) -> Ints:
        enough = len(rows) >= shadow.batch_size
        return rng.choice(rows, size=shadow.batch_size, replace=not enough)

    seen = np.stack([batch(halves[one][0]) for one in person])
    held = np.stack([batch(rows) for _, rows in halves])
    clean = replace(shadow, defense=shadow.defense.without_noise())
    reduced = _reduced(view, shadow, seen), person, _reduced(view, clean, held)
    return Rehearsal(*reduced, shadow.held_out_seed)


def hold_out_persons(
    lesson: Lesson,
    rehearsal: Rehearsal,
    learn: Callable[[Lesson], Likeness],
    *,
    candidates: int,
    folds: int,
) -> HeldOut:
    """Learn from all folds of the persons but one, and judge trials among the persons of that one.

    Raises:
        InputError: a fold has fewer than m persons.
    """
    rng = stream(rehearsal.seed, "rehearsal folds")
    persons = len(rehearsal.held)
    _require_enough(persons, candidates, folds)
    said, truth = [], []
    for fold in np.array_split(rng.permutation(persons), folds):
        chosen = np.flatnonzero(np.isin(rehearsal.person, fold))
        index, secret = _trials(rehearsal.person[chosen], fold, candidates, rng)
        likeness = learn(lesson.without(fold))
        said.append(likeness(rehearsal.seen[chosen], rehearsal.held[index]))
        truth.append(secret)
    return HeldOut(np.concatenate(said), np.concatenate(truth))


def _require_enough(persons: int, candidates: int, folds: int) -> None:
    require(
        persons >= folds * candidates,
        f"{folds} folds of the shadow persons need {folds * candidates}, {candidates} candidates "
        f"each; there are {persons}: bring more persons, or lower --candidates",
    )


def _trials(
    person: Ints, among: Ints, candidates: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Each person ``[n]`` beside others, in a random order: index ``[n, m]``, place ``[n]``."""
    secret = rng.integers(candidates, size=len(person))
    index = np.empty((len(person), candidates), dtype=np.int64)
    for row, (one, place) in enumerate(zip(person, secret, strict=True)):
        others = rng.choice(among[among != one], size=candidates - 1, replace=False)
        index[row] = np.insert(others, place, one)
    return index, secret


def _gradients(shadow: Shadow, rows: Ints) -> Iterator[Grads]:
    """As the clients send them: a defense that learns knows of no person, so it is told of none."""
    if len(rows) == 0:
        return iter(())
    return sent_gradients(
        shadow.task,
        shadow.params,
        shadow.data,
        torch.from_numpy(rows).to(shadow.data.y.device),
        defense=shadow.defense,
        noise_seed=shadow.noise_seed,
        max_bytes=shadow.max_bytes,
    )


def _reduced(view: Callable[[Grads], Tensor], shadow: Shadow, rows: Ints) -> Floats:
    found: Floats = torch.cat([view(grads) for grads in _gradients(shadow, rows)]).cpu().numpy()
    return found
