"""One game on one dataset: the split, the trials and the adversaries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from leakgauge.core.checks import InputError, require, require_choice, require_known
from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.data import Split
from leakgauge.defenses import Defense, none, with_noise
from leakgauge.gradients import MAX_BYTES, batch_gradients, check_vectorisable, params_of
from leakgauge.gradients.vectorising import NotVectorisedError
from leakgauge.inference import (
    BATCH_GAMES,
    GAMES,
    AnyAttack,
    AttributeInference,
    CandidateAttack,
    Game,
    Ordinal,
    PropertyInference,
    ProportionInference,
    Pure,
    Ratio,
    Trials,
    UserInference,
    adversaries_for,
    attribute_candidates,
    games_of,
    parse_adversary,
)
from leakgauge.inference.games.blocks import most_blocks
from leakgauge.inference.games.games import one_against_rest
from leakgauge.inference.games.trials import refuse_few_trials
from leakgauge.inference.games.users import users_of
from leakgauge.inference.spec import InferenceSpec
from leakgauge.inference.words import EMPIRICAL
from leakgauge.results.statistics import Floats, Ints
from leakgauge.runs.spec import check_bounds

BYTES_PER_PARAMETER = 300
"""Memory of a learned defense per model parameter, for 32 hidden units in float64."""


class LearnedDefenses:
    """Cache of the learned defense of each round, in this process.

    Training and the attacks need the same defense. Defenses that do not fit into ``max_bytes`` are
    learned again, with the same result. Another process starts with an empty cache.

    Args:
        max_bytes: bound on the memory of the cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[int, tuple[Params, Defense]] = {}

    def of_round(self, number: int, params: Params, learn: Callable[[], Defense]) -> Defense:
        """Return the defense of a round at ``params``; ``learn`` makes one that is not cached."""
        if number in self._kept and _equal(self._kept[number][0], params):
            return self._kept[number][1]
        defense = learn()
        size = BYTES_PER_PARAMETER * sum(leaf.numel() for leaf in params.values())
        if size * (len(self._kept) + 1) <= self._max_bytes:
            self._kept[number] = dict(params), defense
        return defense

    def __getstate__(self) -> dict[str, Any]:
        return {"_max_bytes": self._max_bytes, "_kept": {}}


def _equal(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(leaf, other[name]) for name, leaf in one.items()
    )


COMPARED_GAMES = (PropertyInference.name, AttributeInference.name)
"""Games whose adversaries score held-out batches by default.

For shares each adversary would be fitted again for each fold and each step of the order.
"""


@dataclass(frozen=True, eq=False)
class GameStage:
    """One game on one dataset, with everything that its rounds share.

    Attributes:
        task: the model and its loss, as prepared by the defense.
        private: records that are trained on and attacked.
        public: records of the adversary.
        test: records that neither uses.
        game: the game on the private records.
        trials: trials of the first round; the others redraw batches if ``spec.batches`` is "fresh".
        attacks: attacks in the order of the caller.
        spec: the settings of the run.
        defense: defense of the gradients, in training and under attack.
        panel: names of the attacks in the sum; empty for none.
        notes: notes for users.
        max_bytes: bound on the gradients held at once.
        learned: cache of learned defenses.
        positions: position of each private record in the user's data ``[k]``; None if unknown.
    """

    task: Task
    private: Dataset
    public: Dataset
    test: Dataset
    game: Game
    trials: Trials
    attacks: tuple[AnyAttack, ...]
    spec: InferenceSpec
    defense: Defense = field(default_factory=none)
    panel: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    max_bytes: int = MAX_BYTES
    learned: LearnedDefenses = field(init=False, repr=False)
    positions: Ints | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "learned", LearnedDefenses(self.max_bytes))

    @property
    def secret(self) -> str:
        """Name of the secret; in user inference that of the users."""
        return self.spec.secret_of(self.game.name)

    @property
    def batch_size(self) -> int:
        """B, records of a private batch and of a training step."""
        return self.spec.batch_of(self.game.name)

    @property
    def log_prior(self) -> Floats:
        """log P(a) ``[m]`` as the adversary knows it.

        An empirical prior is estimated from the test records, a random sample of the population
        that neither side uses, with one added to each count. The private shares, from which
        secrets are drawn, stay unknown to the adversary (Li et al., section 5.1.4).
        """
        if self.spec.prior != EMPIRICAL:
            return np.asarray(np.log(self.game.prior))
        counts = torch.bincount(self.test.secrets[self.secret], minlength=self.game.values) + 1
        return np.asarray((counts.double() / counts.sum()).log().cpu().numpy())

    @property
    def name(self) -> str:
        """Game and defense, for messages and folders."""
        undefended = self.defense.name == "none"
        return self.game.name if undefended else f"{self.game.name}, {self.defense.name}"

    @property
    def knowledge(self) -> tuple[str, ...]:
        """Knowledge of the defense; without a defense only static adversaries exist."""
        return (STATIC,) if self.defense.name == "none" else (STATIC, ADAPTIVE)

    @property
    def compares(self) -> bool:
        """Whether held-out shadow batches compare the adversaries to choose a headline."""
        return len(self.attacks) > 1 and self.game.name in COMPARED_GAMES

    @property
    def shadow_batches(self) -> float:
        """Number of disjoint shadow batches of the rarest secret."""
        counts = torch.bincount(self.public.secrets[self.secret])
        return float(counts[counts > 0].min()) / self.batch_size

    @property
    def majority(self) -> float:
        """Success rate of always guessing the most probable secret."""
        return max(self.game.prior)

    def in_round(self, data: Dataset, role: str, number: int) -> Dataset:
        """Return the records as inputs of a round; VIB adds the noise of their codes.

        A record has one code per round, since it is trained on once per round. ``role`` separates
        the noise of clients from that of the adversary's simulations.
        """
        rng = torch_stream(self.spec.seed, self.game.name, "code", role, number)
        return replace(data, x=with_noise(self.task, data.x, generator=rng))


def make_stage(
    ask: str,
    task: Task,
    data: Dataset,
    split: Split,
    *,
    attacks: Sequence[AnyAttack] = (),
    spec: InferenceSpec,
    defense: Defense | None = None,
    panel: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> GameStage:
    """Return a stage: draw the trials from the private records, and check everything.

    Args:
        ask: the game's name: ``"property"``, ``"attribute"``, ``"proportion"`` or ``"user"``.
        task: the model, at its initial parameters, and its loss.
        data: all records.
        split: rows of the private, public and test records.
        attacks: attacks with different names; by default that of the paper.
        spec: the settings of the run.
        defense: defense of the gradients; None for none.
        panel: names of the attacks in the sum.
        notes: notes for users.

    Raises:
        InputError: the data, the model or the settings do not fit the game.
    """
    require_choice(ask, "--ask", GAMES)
    check_bounds(spec)
    chosen = none() if defense is None else defense
    if ask == UserInference.name:
        chosen = chosen.for_user_inference()
    params = params_of(task.model)
    require(bool(params), "the model has no trainable parameters; set requires_grad=True")
    for name, leaf in params.items():
        require(
            leaf.dtype in (torch.float32, torch.float64),
            f"parameter {name!r} is {leaf.dtype}; expected float32 or float64: gradients of fewer "
            "digits are too coarse; call model.float()",
        )
    device = next(iter(params.values())).device
    data = _with_secret(ask, data, spec).to(device)
    generator = torch_stream(spec.seed, "defense", chosen.name)
    task = chosen.prepare(task, shape=tuple(data.x.shape[1:]), generator=generator)
    _try(task, data, spec.batch_of(ask), allow_loop=spec.allow_loop)
    parts = (split.private, split.public, split.test)
    private, public, test = (data.rows(rows.to(device)) for rows in parts)
    values = int(data.secrets[spec.secret_of(ask)].max()) + 1
    game = _deal(ask, private, values, spec)
    trials = game.draw_trials(spec.trials_of(ask), rng=stream(spec.seed, ask, "trials"))
    refuse_few_trials(trials, game.values)
    named = attacks or (parse_adversary(adversaries_for(ask)[0]),)
    ready = tuple(_ready(ask, attack, data.x) for attack in named)
    names = [attack.name for attack in ready]
    require(len(set(names)) == len(names), f"expected different attacks, got {names}")
    for attack in ready:
        if isinstance(attack, CandidateAttack):
            shadow = game.shadow(task, params_of(task.model), public, max_bytes=MAX_BYTES)
            attack.check(shadow, game.values)
    stage = GameStage(task, private, public, test, game, trials, ready, spec, chosen, panel, notes)
    with_candidates(stage, replace(trials, rows=trials.rows[:1]))  # refuses early
    return stage


def with_candidates(stage: GameStage, trials: Trials) -> Trials:
    """Return the trials with the candidate batches of candidate attacks."""
    compared = any(isinstance(attack, CandidateAttack) for attack in stage.attacks)
    if trials.candidates is not None or not compared:
        return trials
    candidates = attribute_candidates(trials, stage.secret, stage.game.values)
    return replace(trials, candidates=candidates)


def _with_secret(ask: str, data: Dataset, spec: InferenceSpec) -> Dataset:
    """Return the data with the secret of the game: the user, one value against the rest, ..."""
    secret = spec.secret_of(ask)
    if ask == UserInference.name:
        return replace(data, secrets={**data.secrets, secret: users_of(data.users)})
    require_known(secret, data.secrets, f"no secret {secret!r} in the data")
    if ask == ProportionInference.name:
        return one_against_rest(data, secret, spec.ratio_of)
    return data


def _try(task: Task, data: Dataset, batch_size: int, *, allow_loop: bool) -> None:
    """Compute the gradient of one batch, to refuse an unsuitable model before training."""
    first = data.rows(torch.arange(min(len(data), batch_size), device=data.y.device))
    x = with_noise(task, first.x, generator=torch_stream(0, "try"))
    if allow_loop:
        batch_gradients(task, params_of(task.model), x[None], first.y[None])
        return
    try:
        check_vectorisable(task, x, first.y)
    except NotVectorisedError as error:
        raise InputError(
            f"{error.reason}; allow a plain loop, slower and exact: --allow-loop"
        ) from error


def _deal(ask: str, private: Dataset, values: int, spec: InferenceSpec) -> Game:
    rng = stream(spec.seed, ask, "blocks")
    batch_size, secret = spec.batch_of(ask), spec.secret_of(ask)
    if ask == UserInference.name:
        count = spec.candidates
        return UserInference.deal(
            private, batch_size=batch_size, candidates=count, draw=spec.draw, rng=rng
        )
    game = BATCH_GAMES[ask]
    proportion = game is ProportionInference
    mix = Ratio(spec.ratio_bins, spec.ratio_counts) if proportion else Pure(values)
    prior = None
    if spec.prior == EMPIRICAL:
        require(not proportion, "the data have no prior of shares; take --prior uniform")
        counts = torch.bincount(private.secrets[secret], minlength=values)
        prior = tuple((counts.double() / len(private)).tolist())
    return game.deal(
        private,
        secret,
        batch_size=batch_size,
        mix=mix,
        prior=prior,
        max_blocks=most_blocks(spec.trials_of(ask), mix.values),
        draw=spec.draw,
        rng=rng,
    )


def _ready(ask: str, attack: AnyAttack, x: torch.Tensor) -> AnyAttack:
    """Return the attack for this game and records ``x``; a share is inferred step by step."""
    if isinstance(attack, Ordinal):
        return attack
    require(
        ask in games_of(attack),
        f"the adversary {attack.name!r} does not support {ask!r}; choose one of "
        f"{', '.join(adversaries_for(ask))}",
    )
    by_data = getattr(attack, "for_records", None)
    attack = attack if by_data is None else by_data(x)
    if ask == ProportionInference.name:
        assert not isinstance(attack, CandidateAttack)
        return Ordinal(attack)
    return attack
