"""Asks the questions of one task and yields records.

The steps are separate so that a run can be stopped between them: ``stage`` deals the trials,
``trajectory`` trains, ``play_round`` attacks one round given its parameters, ``judge`` turns all
rounds into records. ``audit`` does them in a row.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import product
from platform import python_version

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge import scores
from leakgauge.checks import InputError, require, require_choice, require_count, require_positive
from leakgauge.data import Split
from leakgauge.defenses import Defense, none
from leakgauge.gradients import (
    MAX_BYTES,
    batch_gradients,
    check_vectorisable,
    params_of,
)
from leakgauge.inference import GAMES, Attack, Forest, Shadow, Trials, accumulate
from leakgauge.inference.games import MAX_BLOCKS, MIN_BLOCKS, BatchGame
from leakgauge.inference.observing import sent_gradients
from leakgauge.records import ACCUMULATED, Estimate, Record
from leakgauge.rng import derive, stream
from leakgauge.threads import one_thread
from leakgauge.training import predict, train_epoch
from leakgauge.types import Dataset, Params, Task

REUSE, FRESH = "reuse", "fresh"
UNIFORM, EMPIRICAL = "uniform", "empirical"
STATIC, ADAPTIVE = "static", "adaptive"


@dataclass(frozen=True)
class Settings:
    """How an audit plays; the defaults are those of Li et al., CCS 2024, where the paper has one.

    Attributes:
        secret: the name of the secret.
        batch_size: B, records a batch, of the trials as of the training.
        rounds: a round is an epoch (section 5.1.4); round 1 is before the first.
        trials: private batches that are attacked.
        lr: learning rate of SGD.
        batches: ``"reuse"``: a trial's batch is the same in every round, as in training over
            epochs; ``"fresh"``: each round draws a new batch with the same secret.
        prior: ``"uniform"``, or ``"empirical"``: the secret's shares among the private records.
        seed: all randomness follows from it.
        max_bytes: bound on the gradients held at once.
        allow_loop: take a model that ``torch.func`` cannot vectorise through a plain loop, which
            is slower and exact; else it is refused.
    """

    secret: str
    batch_size: int = 16
    rounds: int = 10
    trials: int = 5000
    lr: float = 0.01
    batches: str = REUSE
    prior: str = UNIFORM
    seed: int = 0
    max_bytes: int = MAX_BYTES
    allow_loop: bool = False

    def __post_init__(self) -> None:
        require_count(self.batch_size, "batch size")
        require_count(self.rounds, "number of rounds")
        require_count(self.trials, "number of trials")
        require_positive(self.lr, "learning rate")
        require_positive(self.max_bytes, "memory bound in bytes")
        require_choice(self.batches, "batches", (REUSE, FRESH))
        require_choice(self.prior, "prior", (UNIFORM, EMPIRICAL))


@dataclass(frozen=True, eq=False)
class Stage:
    """One game set up on one dataset: all that its rounds share.

    Attributes:
        task: the model and its loss.
        private: the records that are trained on and attacked; public, the adversary's own; test,
            seen by neither.
        game: the game, dealt on the private records.
        trials: played once; the rounds redraw their batches where ``settings.batches`` says so.
        attacks: in the order of the caller.
        settings: how it is played.
        defense: what the clients do to their gradients, in training and when attacked.
    """

    task: Task
    private: Dataset
    public: Dataset
    test: Dataset
    game: BatchGame
    trials: Trials
    attacks: tuple[Attack, ...]
    settings: Settings
    defense: Defense = field(default_factory=none)

    @property
    def log_prior(self) -> NDArray[np.float64]:
        """Log P(a) ``[m]``."""
        log_prior: NDArray[np.float64] = np.log(np.asarray(self.game.prior))
        return log_prior

    @property
    def name(self) -> str:
        """Game and defense, for people and for folders."""
        undefended = self.defense.name == "none"
        return self.game.name if undefended else f"{self.game.name}, {self.defense.name}"

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the adversaries know of the defense; where there is none, there is nothing to."""
        return (STATIC,) if self.defense.name == "none" else (STATIC, ADAPTIVE)

    @property
    def majority(self) -> float:
        """The success rate of always guessing the most probable secret."""
        return max(self.game.prior)


@dataclass(frozen=True, eq=False)
class Played:
    """What each adversary said of one round, by its knowledge and name: ``"static forest"``.

    Attributes:
        log_posterior: ``[n, m]``.
        details: what was fitted.
        seconds: for fitting and for judging the trials.
    """

    log_posterior: Mapping[str, NDArray[np.float64]]
    details: Mapping[str, str]
    seconds: Mapping[str, float]


def stage(
    ask: str,
    task: Task,
    data: Dataset,
    split: Split,
    *,
    attacks: Sequence[Attack] = (Forest(),),
    settings: Settings,
    defense: Defense | None = None,
) -> Stage:
    """Deal the private records and play the trials.

    Args:
        ask: the game's name, ``"property"`` or ``"attribute"``.
        task: the model, at its initial parameters, and its loss.
        data: all records.
        split: whose they are.
        attacks: with different names.
        settings: how to play.
        defense: what the clients do to their gradients; None for nothing.

    Raises:
        InputError: the data, the model or the settings do not fit the game.
    """
    require_choice(ask, "the question asked", GAMES)
    names = [attack.name for attack in attacks]
    require(len(set(names)) == len(names) > 0, f"expected different attacks, got {names}")
    secret = settings.secret
    require(secret in data.secrets, f"no secret {secret!r} in the data")
    params = params_of(task.model)
    require(bool(params), "the model has no trainable parameters; set requires_grad=True")
    device = next(iter(params.values())).device
    data = data.to(device)
    first = data.rows(torch.arange(min(len(data), settings.batch_size), device=device))
    if not settings.allow_loop:
        check_vectorisable(task, first.x, first.y)
    else:
        batch_gradients(task, params, first.x[None], first.y[None])
    private, public, test = (
        data.rows(rows.to(device)) for rows in (split.private, split.public, split.test)
    )
    values = int(data.secrets[secret].max()) + 1
    prior = torch.bincount(private.secrets[secret], minlength=values).double() / len(private)
    game = GAMES[ask].deal(
        private,
        secret,
        batch_size=settings.batch_size,
        values=values,
        prior=tuple(prior.tolist()) if settings.prior == EMPIRICAL else None,
        max_blocks=max(MIN_BLOCKS, min(MAX_BLOCKS, settings.trials // (5 * values))),
        rng=stream(settings.seed, ask, "blocks"),
    )
    trials = game.play(settings.trials, rng=stream(settings.seed, ask, "trials"))
    _refuse_few_trials(trials, values)
    chosen = none() if defense is None else defense
    if chosen.task is not None or chosen.learn is not None:
        raise InputError(f"the audit cannot play the defense {chosen.name!r} yet; take another")
    return Stage(task, private, public, test, game, trials, tuple(attacks), settings, chosen)


def _refuse_few_trials(trials: Trials, values: int) -> None:
    """Each secret must be tried in several blocks, or resampled blocks may miss it."""
    for value in range(values):
        blocks = len(torch.unique(trials.block[trials.secret == value]))
        require(
            blocks >= MIN_BLOCKS,
            f"{len(trials)} trials try one of the {values} secrets on {blocks} independent groups "
            f"of records only; an interval needs {MIN_BLOCKS}: ask for at least "
            f"{50 * values} --trials",
        )


def trajectory(scene: Stage, *, after: int = 0, params: Params | None = None) -> Iterator[Params]:
    """The parameters at the start of each round, then those at the end of the last.

    Args:
        scene: what is trained.
        after: rounds that are trained already; the iterator goes on behind them.
        params: the parameters after these; the model's own if None.
    """
    settings = scene.settings
    current = params_of(scene.task.model) if params is None else dict(params)
    if after == 0 and params is None:
        yield current
    for number in range(after + 1, settings.rounds + 1):
        with one_thread():
            current = train_epoch(
                scene.task,
                current,
                scene.private,
                lr=settings.lr,
                batch_size=settings.batch_size,
                rng=stream(settings.seed, scene.game.name, "train", number),
                defense=scene.defense,
                noise_seed=derive(settings.seed, scene.name, "train noise", number),
            )
        if not all(bool(torch.isfinite(leaf).all()) for leaf in current.values()):
            raise InputError(
                f"training diverged in round {number} (parameters are not finite); lower the "
                f"learning rate, now {settings.lr:g}"
            )
        yield current


def play_round(scene: Stage, number: int, params: Params) -> Played:
    """Fit every adversary at this round's parameters and let it judge the trials.

    The trials' gradients are made chunk by chunk and never held at once.
    """
    with one_thread():
        return _play_round(scene, number, params)


def _play_round(scene: Stage, number: int, params: Params) -> Played:
    settings, ask = scene.settings, scene.game.name
    clean = Shadow(
        scene.task,
        params,
        scene.public,
        settings.secret,
        scene.game.values,
        settings.batch_size,
        settings.max_bytes,
        noise_seed=derive(settings.seed, scene.name, "shadow noise", number),
    )
    bench = {STATIC: clean, ADAPTIVE: replace(clean, defense=scene.defense)}
    adversaries, seconds = {}, {}
    for knowledge in scene.knowledge:
        for attack in scene.attacks:
            began = time.perf_counter()
            rng = stream(settings.seed, ask, "fit", attack.name, number)
            fitted = attack.fit(bench[knowledge], scene.log_prior, rng=rng)
            adversaries[f"{knowledge} {attack.name}"] = fitted
            seconds[f"{knowledge} {attack.name}"] = time.perf_counter() - began
    trials = scene.trials
    if settings.batches == FRESH:
        trials = scene.game.redraw(trials, rng=stream(settings.seed, ask, "redraw", number))
    said: dict[str, list[NDArray[np.float64]]] = {name: [] for name in adversaries}
    for grads in sent_gradients(
        scene.task,
        params,
        trials.pool,
        trials.rows,
        defense=scene.defense,
        noise_seed=derive(settings.seed, scene.name, "noise", number),
        max_bytes=settings.max_bytes,
    ):
        for name, adversary in adversaries.items():
            began = time.perf_counter()
            said[name].append(adversary.log_posterior(grads))
            seconds[name] += time.perf_counter() - began
    return Played(
        {name: np.concatenate(parts) for name, parts in said.items()},
        {name: adversary.details for name, adversary in adversaries.items()},
        seconds,
    )


def judge(
    scene: Stage, rounds: Sequence[Played], final: Params, *, dataset: str, label: str
) -> list[Record]:
    """Score every adversary, in single rounds and accumulated, and the trained model.

    Args:
        scene: what was played.
        rounds: what the adversaries said, round by round.
        final: the parameters after the last round.
        dataset: the data's name, for the records.
        label: the label's name, for the records.
    """
    with one_thread():
        return _judge(scene, rounds, final, dataset=dataset, label=label)


def _judge(
    scene: Stage, rounds: Sequence[Played], final: Params, *, dataset: str, label: str
) -> list[Record]:
    base = Record(
        question="inference",
        game=scene.game.name,
        dataset=dataset,
        label=label,
        secret=scene.settings.secret,
        defense=scene.defense.name,
        knowledge=STATIC,
        adversary="",
        metric="",
        round=0,
        seed=scene.settings.seed,
        estimate=Estimate(0, 0, 0, 0),
        chance=0.0,
        versions=versions(),
    )
    found: list[Record] = []
    for knowledge, attack in product(scene.knowledge, scene.attacks):
        key = f"{knowledge} {attack.name}"
        said = np.stack([played.log_posterior[key] for played in rounds])
        cell = replace(base, knowledge=knowledge, adversary=attack.name)
        for number, played in enumerate(rounds, start=1):
            one = replace(
                cell,
                round=number,
                details={"adversary": played.details[key]},
                seconds=played.seconds[key],
            )
            found += _scored(scene, said[number - 1], one)
        total = replace(
            cell,
            round=ACCUMULATED,
            details={"adversary": repr(attack)},
            seconds=sum(played.seconds[key] for played in rounds),
        )
        found += _scored(scene, accumulate(said, scene.log_prior), total)
    return [*found, *_utility(scene, final, base)]


def _scored(scene: Stage, log_posterior: NDArray[np.float64], base: Record) -> Iterator[Record]:
    judged = scores.Judged(
        scene.trials.secret.cpu().numpy(), log_posterior, scene.trials.block.cpu().numpy()
    )
    # the same resamples for every adversary and round, so that they can be compared
    rng = stream(scene.settings.seed, scene.game.name, "bootstrap")
    chance = scores.chance(judged.truth, scene.majority)
    for metric, estimate in scores.score(judged, majority=scene.majority, rng=rng).items():
        curve = scores.roc(judged) if metric == scores.AUROC else None
        yield replace(base, metric=metric, estimate=estimate, chance=chance[metric], curve=curve)


def _utility(scene: Stage, final: Params, base: Record) -> Iterator[Record]:
    """The trained model's accuracy; nothing where its outputs are no scores of classes."""
    predicted = predict(scene.task, final, scene.test)
    if predicted is None:
        return
    correct = (predicted == scene.test.y).cpu().numpy()
    users = scene.test.users
    block = np.arange(len(correct)) if users is None else users.cpu().numpy()
    rng = stream(scene.settings.seed, scene.game.name, "utility")
    yield replace(
        base,
        metric=scores.ACCURACY,
        round=scene.settings.rounds,
        estimate=scores.share(correct, block, rng=rng),
        chance=float(torch.bincount(scene.test.y).max()) / len(correct),
    )


def audit(scene: Stage, *, dataset: str = "data", label: str = "label") -> list[Record]:
    """Train, attack and judge in this process.

    Args:
        scene: from ``stage``.
        dataset: the data's name, for the records.
        label: the label's name, for the records.
    """
    *starts, final = trajectory(scene)
    rounds = [play_round(scene, number, params) for number, params in enumerate(starts, start=1)]
    return judge(scene, rounds, final, dataset=dataset, label=label)


def versions() -> dict[str, str]:
    """Of Python and the packages that compute figures."""
    packages = ("leakgauge", "torch", "numpy", "scikit-learn", "scipy")
    return {"python": python_version(), **{name: version(name) for name in packages}}
