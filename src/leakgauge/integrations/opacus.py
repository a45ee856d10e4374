"""Opacus: a monitor of its training, and an audit with gradient canaries."""

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.core.extras import not_installed
from leakgauge.core.rng import stream
from leakgauge.defenses.clip import ClipNorm
from leakgauge.defenses.defense import Defense
from leakgauge.defenses.noise import GaussianNoise
from leakgauge.integrations.opacus_canaries import Draws, places_of
from leakgauge.integrations.opacus_optimizers import (
    check_optimizer,
    flat_clip,
    names_of,
    require_dp,
)
from leakgauge.integrations.opacus_samplers import Ints
from leakgauge.integrations.opacus_stated import Stated
from leakgauge.integrations.watcher import Watcher
from leakgauge.privacy.dp_audit import DpAudit, audit_one_run
from leakgauge.privacy.dp_audit import audit_runs as audit_runs
from leakgauge.privacy.profile import Profile
from leakgauge.privacy.profile import profile_of as profile_of
from leakgauge.privacy.whole_audit import SHARE, audit_known_shape
from leakgauge.results.statistics import Floats

if importlib.util.find_spec("opacus") is None:
    raise not_installed("opacus", "opacus")

CHUNK = 2**24
"""Numbers in the canaries' gradients that are held at once."""


@contextmanager
def watching(optimizer: Any, monitor: Watcher) -> Iterator[None]:
    """Watch the training of a ``DPOptimizer``, from ``PrivacyEngine.make_private``.

    ``.grad`` then holds the release of the optimizer: the clipped sum with noise, over the expected
    batch size. The cheap measure clips the gradient of each record, and adds the noise that it
    would get alone. Opacus' accountant counts on; see ``each_release``.

    Args:
        optimizer: a ``DPOptimizer``.
        monitor: monitor of the model.

    Raises:
        InputError: the optimizer is not one of Opacus.
    """
    clip = flat_clip(optimizer)
    released = each_release(optimizer, lambda _: monitor.look())
    with monitor, released:
        monitor.drive()
        noise = GaussianNoise(float(optimizer.noise_multiplier * clip))
        monitor.defend_records(Defense("opacus", per_example=ClipNorm(clip), update=noise))
        yield


@contextmanager
def each_release(optimizer: Any, look: Callable[[Any], None]) -> Iterator[None]:
    """Call a function with the optimizer at each step, when ``.grad`` holds its release.

    The optimizer has one place for a hook, which Opacus' accountant uses. The function is called
    after it, so that epsilon is the same. The hook is removed at the end.

    Args:
        optimizer: a ``DPOptimizer``, from ``PrivacyEngine.make_private``.
        look: function of the optimizer, called between the noise and the update.

    Raises:
        InputError: the optimizer is not one of Opacus.
    """
    require_dp(optimizer, "attach_step_hook")
    earlier: Callable[[Any], None] | None = optimizer.step_hook
    is_open = [True]

    def hook(stepping: Any) -> None:
        if earlier is not None:
            earlier(stepping)
        if is_open:  # another hook may keep this one in its chain
            look(stepping)

    optimizer.attach_step_hook(hook)
    try:
        yield
    finally:
        is_open.clear()
        if optimizer.step_hook is hook:
            optimizer.step_hook = earlier


class Audit:
    """Plants gradient canaries in a training with Opacus, and measures what they reveal.

    A canary is a record whose gradient is one coordinate of the parameters, larger than the
    clipping norm. A separate fair coin decides whether it is in the data. Then it is drawn into
    batches as the loader draws records, and the optimizer clips it and adds noise as to any other.
    The auditor knows all other records, as differential privacy assumes: a canary's score is its
    coordinate of the released gradients minus theirs, summed over steps. By layer these
    coordinates also show whether the optimizer clips and adds noise as it says.

    Opacus' accountant ignores canaries. The trained model learns from them unless
    ``withdraw`` takes them out again.

    Args:
        engine: a ``PrivacyEngine``, whose epsilon is audited; anything with ``get_epsilon(delta)``.
        optimizer: the ``DPOptimizer`` that ``make_private`` returns.
        loader: the data loader that training reads from; it determines how often a record is drawn.
        canaries: m, at most the number of parameters. More show a larger epsilon.
        seed: seed of coins, coordinates and draws.
        members: whether each canary is in the data ``[m]``; None flips coins. One run needs coins.
        norm: norm of a canary's gradient before clipping, in clipping norms.
        model: the model, for the names of its layers.
        noise_multiplier: what the noise was stated to be; None takes what the accountant counts.
        withdraw: remove each canary from the gradient before the update, so that training is the
            same as without canaries, up to rounding.

    Raises:
        InputError: the optimizer is not one of Opacus, or of a kind that has no gradients of
            single records, clips by layer or works on several devices; or there are more canaries
            than parameters.
    """

    def __init__(
        self,
        engine: Any,
        optimizer: Any,
        loader: Any,
        *,
        canaries: int = 500,
        seed: int = 0,
        members: Sequence[bool] | None = None,
        norm: float = 10.0,
        model: nn.Module | None = None,
        noise_multiplier: float | None = None,
        withdraw: bool = False,
    ) -> None:
        check_optimizer(optimizer)
        require_count(canaries, "number of canaries")
        require_positive(norm, "norm of a canary")
        if noise_multiplier is not None:
            require_positive(noise_multiplier, "stated noise multiplier")
        sizes = [p.numel() for p in optimizer.params]
        size = sum(sizes)
        require(
            canaries <= size,
            f"{canaries} canaries for {size} parameters; expected at most one for each",
        )
        self._engine, self._optimizer = engine, optimizer
        self._norm, self._withdraw = norm, withdraw
        coins = stream(seed, "canary", "members").random(canaries) < 0.5
        self._by_coins = members is None
        self.members: NDArray[np.bool_] = np.array(coins if members is None else members, bool)
        require(
            self.members.shape == (canaries,),
            f"members are {list(self.members.shape)}, canaries {canaries}; expected one for each",
        )
        self._draws = Draws(loader, self.members, seed)
        places, starts = places_of(sizes, canaries, seed), np.cumsum([0, *sizes])
        self._of = np.searchsorted(starts, places, side="right") - 1  # parameter of each place
        self._within = places - starts[self._of]  # its place in it, when flat
        self._places = [np.flatnonzero(self._of == k) for k in range(len(starts) - 1)]
        self._others, self._drawn = np.zeros(len(places)), np.zeros(len(places), np.int64)
        self._records = 0
        names = names_of(optimizer.params, model)
        self._stated = Stated(engine, self._draws, self._of, names, noise_multiplier)
        self._open = ExitStack()
        self.scores: Floats = np.zeros(canaries)
        self.steps = 0

    def __enter__(self) -> Self:
        own = vars(self._optimizer).get("clip_and_accumulate")
        clip = self._optimizer.clip_and_accumulate

        def clip_with_canaries() -> None:
            clip()
            rows = self._optimizer.params[0].grad_sample
            self._records += sum(map(len, rows)) if isinstance(rows, list) else len(rows)
            # A batch in parts is one step: canaries come with its last part.
            if not self._optimizer._check_skip_next_step(pop_next=False):
                self._others = self._read([p.summed_grad for p in self._optimizer.params])
                self._plant(clip)

        self._stated.start()
        self._open.enter_context(each_release(self._optimizer, self._look))
        self._optimizer.clip_and_accumulate = clip_with_canaries
        self._open.callback(self._restore, own)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def _restore(self, own: Any) -> None:
        del self._optimizer.clip_and_accumulate
        if own is not None:
            self._optimizer.clip_and_accumulate = own

    def claim(self, delta: float) -> Profile:
        """Return the accountant's claim so far.

        Args:
            delta: delta of the reported epsilons; in (0, 1).
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on orders and domains at the other deltas
            return profile_of(lambda at: float(self._engine.get_epsilon(delta=at)), delta)

    def result(
        self,
        *,
        delta: float,
        confidence: float = 0.99,
        guesses: int | None = None,
        claim: Profile | None = None,
        sampling: Literal["poisson", "loader"] = "poisson",
    ) -> DpAudit:
        """Return the result of the canaries and the accountant's claim.

        Args:
            delta: delta of the reported epsilons; in (0, 1).
            confidence: probability that a true claim is not refuted.
            guesses: number of guessed canaries; None chooses a number that suits the claim.
            claim: claim in place of the engine's.
            sampling: what the claim counts: ``"poisson"`` sampling, as Opacus' accountants do, or
                that of the ``"loader"``, for a claim of your own.

        Raises:
            InputError: no step was audited, or the caller chose the members.
        """
        require(self.steps > 0, "no step was audited; train inside of 'with Audit(...):'")
        require(
            self._by_coins,
            "one run needs canaries that are in by coins; leave out members, or give scores of "
            "many runs to audit_runs",
        )
        require_choice(sampling, "sampling of the claim", ("poisson", "loader"))
        require(
            sampling == "poisson" or claim is not None,
            "the engine's claim counts Poisson sampling; give a claim= for that of the loader",
        )
        stated, stated_claim = self._stated, claim or self.claim(delta)
        shape = stated.shape()
        found = audit_one_run(
            self.scores,
            self.members,
            stated_claim,
            guesses=guesses,
            confidence=confidence,
            draws=self._draws.share_of(stated.batches),
            epsilon_with=stated.epsilon_with(delta) if stated.history else None,
            share=1.0 if shape is None else 1 - SHARE,
        )
        if shape is not None:
            whole = audit_known_shape(shape, stated_claim, confidence=confidence, share=SHARE)
            found = found.beside(whole)
        conformance = stated.conformance(claim, confidence, poisson=sampling == "poisson")
        return replace(found, conformance=conformance)

    def _plant(self, clip: Any) -> None:
        params = list(self._optimizer.params)
        drawn = self._draws.next(self._optimizer.accumulated_iterations)
        self._drawn = np.bincount(drawn, minlength=len(self._of))
        own = [p.grad_sample for p in params]
        most = max(1, CHUNK // sum(p.numel() for p in params))
        for first in range(0, len(drawn), most):
            self._fill(drawn[first : first + most])
            clip()
        for p, value in zip(params, own, strict=True):
            p.grad_sample = value

    def _fill(self, drawn: Ints) -> None:
        size = self._norm * flat_clip(self._optimizer)
        rows_of = [np.flatnonzero(self._of[drawn] == k) for k in range(len(self._places))]
        for p, at in zip(self._optimizer.params, rows_of, strict=True):
            rows = torch.zeros((len(drawn), p.numel()), dtype=p.dtype, device=p.device)
            places = self._within[drawn[at]]
            rows[torch.from_numpy(at).to(p.device), torch.from_numpy(places).to(p.device)] = size
            p.grad_sample = rows.view(len(drawn), *p.shape)

    def _look(self, optimizer: Any) -> None:
        clip = flat_clip(optimizer)
        times = 1.0
        if optimizer.loss_reduction == "mean":
            times = float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
        released = self._read([p.grad for p in optimizer.params]) * times
        left = (released - self._others) / clip
        self.scores += left[: len(self.scores)]
        self.steps += 1
        self._stated.step(optimizer, left, self._drawn, self._records)
        self._records = 0
        if self._withdraw:
            whole = self._read([p.summed_grad for p in optimizer.params])
            self._subtract((whole - self._others) / times)

    def _read(self, values: Sequence[Tensor]) -> Floats:
        found = np.zeros(len(self._of))
        for value, canaries in zip(values, self._places, strict=True):
            places = torch.from_numpy(self._within[canaries]).to(value.device)
            found[canaries] = value.detach().reshape(-1)[places].double().cpu().numpy()
        return found

    def _subtract(self, values: Floats) -> None:
        for p, canaries in zip(self._optimizer.params, self._places, strict=True):
            places = torch.from_numpy(self._within[canaries]).to(p.device)
            p.grad.view(-1).index_add_(0, places, -torch.from_numpy(values[canaries]).to(p.grad))
