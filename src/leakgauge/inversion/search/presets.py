"""The searches by name: settings of one engine, as methods that users can name."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType, NoneType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from torch import nn

from leakgauge.core.checks import require_known
from leakgauge.core.types import Task
from leakgauge.defenses import Defense
from leakgauge.inversion.methods import Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction
from leakgauge.inversion.search.adaptive import adapted_settings, adapts, smoother
from leakgauge.inversion.search.between import Between
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.layer_weights import (
    DepthWeights,
    LayerWeights,
    Weights,
    objective_of,
)
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.words import ITERATIONS, RATE
from leakgauge.training.first_step import first_step

_DLG = SearchSettings(
    objective=SquaredError(),
    optimizer="lbfgs",
    lr=1.0,
    iterations=300,
    schedule="constant",
    joint_labels=True,
)

# As the command line of Geiping et al.'s program has it by default, for CIFAR-10; the iterations
# are those of breaching's configuration. The program's class has a total variation of 0.1.
_INVERTING = SearchSettings(
    objective=Cosine(),
    optimizer="signed-adam",
    lr=0.1,
    iterations=24_000,
    schedule="step-down",
    total_variation=1e-4,
    boxed=True,
)


def agic(*, trained: bool = False, large: bool = False) -> SearchSettings:
    """Return AGIC's settings for a network of this phase and size.

    10,000 iterations of Adam with rate 0.1, and layer weights up to 50, or 2 for a trained network.
    The total variation weighs 1e-4, and 1e-2 for a trained network: the paper's values for
    ResNet20-4 on 32 x 32 images, taken here for every network but ``large`` ones; these have the
    values for ResNet50 on ImageNet, 1e-3 and 1e-1.

    Adam works on the values of the slope, at a constant rate and without bounds, since the paper
    names nothing else. ``agic:optimizer=signed-adam,schedule=step-down,boxed=1`` adds the signs,
    the falling rate and the box of Geiping et al., whose method the paper's baseline is; on images
    of CIFAR-10 and the slim network, both readings came out alike.

    Args:
        trained: whether the attacked network is trained; an attacker knows its phase.
        large: whether the network is a ResNet50, or images are as large as ImageNet's.

    References:
        Xu et al., AGIC, SRDS 2022, section V-A.

    >>> agic(trained=True).total_variation, agic(trained=True).objective.beta
    (0.01, 2.0)
    """
    return SearchSettings(
        objective=LayerWeights(beta=2.0 if trained else 50.0),
        optimizer="adam",
        lr=0.1,
        iterations=10_000,
        schedule="constant",
        total_variation=_smoothness(trained=trained, large=large),
    )


def _smoothness(*, trained: bool, large: bool) -> float:
    """Return the weight of the total variation for a network of this phase and size."""
    if large:
        return 1e-1 if trained else 1e-3
    return 1e-2 if trained else 1e-4


PRESETS: Mapping[str, SearchSettings] = MappingProxyType(
    {
        "dlg": _DLG,
        "dlg-adam": replace(_DLG, optimizer="adam", lr=0.1, iterations=10_000),
        "idlg": replace(_DLG, joint_labels=False),
        "inverting-gradients": _INVERTING,
        "agic": agic(),
        "leakgauge": replace(
            _INVERTING,
            objective=DepthWeights(),
            lr=0.2,
            schedule="cosine",
            total_variation=0.008,
            prior_relative=True,
            prior_per_record=True,
            prior_first=30.0,
            rescale=True,
        ),
    }
)
"""Attacks by name. ``dlg`` (Zhu et al. 2019) and ``idlg`` (Zhao et al. 2020) differ in the labels,
which ``idlg`` infers first; ``dlg-adam`` is ``dlg`` with Adam and the iterations of AGIC's paper,
where it is a baseline; ``inverting-gradients`` is that of Geiping et al. 2020; ``agic`` (Xu et al.
2022) weights the layers. The last two are here as for an untrained network and small images (see
``presets_for``).

``leakgauge`` is ours: weights over all layers, signs, larger steps, a cosine schedule and a total
variation that is relative to the objective, and fades no further than it. Its numbers were chosen
on training images of CIFAR-10, 16 for the slim network and 3 for a ResNet20-4 drawn by ``he``; how
the total variation fades on 16 each for slim and ResNet20, and on 4 for ResNet20-4."""


def presets_for(*, trained: bool, large: bool) -> Mapping[str, SearchSettings]:
    """Return ``PRESETS`` with ``agic`` for a network of this phase and size; arguments as there.

    ``inverting-gradients``, the baseline of AGIC's paper, has the same total variation, so that a
    comparison is about the objectives.

    >>> presets_for(trained=True, large=False)["inverting-gradients"].total_variation
    0.01
    """
    own = agic(trained=trained, large=large)
    baseline = replace(_INVERTING, total_variation=own.total_variation)
    return MappingProxyType({**PRESETS, "agic": own, "inverting-gradients": baseline})


def preset(name: str, **changed: Any) -> SearchSettings:
    """Return the settings of the attack called ``name``, some of them changed.

    Args:
        name: one of ``PRESETS``.
        changed: fields of ``SearchSettings``.

    Raises:
        InputError: the name or a setting is not known, or a value is out of its range.

    >>> preset("agic", iterations=500).iterations
    500
    >>> preset("agic", restart=3)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: an attack has no setting 'restart'; did you mean 'restarts'?
    """
    require_known(name, PRESETS, f"attack {name!r} is not known")
    known = [field.name for field in fields(SearchSettings)]
    for setting in changed:
        require_known(setting, known, f"an attack has no setting {setting!r}")
    return replace(PRESETS[name], **changed)


@dataclass(frozen=True)
class Search(Method):
    """A search for records whose update is like the observed one.

    Attributes:
        settings: settings of the search.
        follows_paper: whether several epochs are put together by the rules of AGIC's paper.
    """

    traits: ClassVar[Traits] = Traits(
        does="searches for records whose update is like the one that was sent.",
        searches=True,
        adapts=True,
        several_epochs=True,
    )
    settings: SearchSettings
    follows_paper: bool = False

    @property
    def iterations(self) -> int:
        """Number of iterations of its search."""
        return self.settings.iterations

    @property
    def finds_labels(self) -> bool:
        """Whether it searches for unknown labels together with the records."""
        return self.settings.joint_labels

    @property
    def described(self) -> str:
        """Its settings as text."""
        return repr(self.settings)

    def adapts_to(self, defense: Defense) -> bool:
        """Return whether knowledge of the defense changes the search."""
        return adapts(self.settings, defense)

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the records with the smallest loss; arguments and errors as for ``Method``."""
        settings = self.settings
        if known.defense is not None:
            settings = adapted_settings(settings, known.defense, task.model, seen.sent)
        settings = settings_against(settings, known.steps, unknown=known.unknown)
        local = known.steps if known.simulate else None
        if known.defense is None and (read := bounded(settings, task.model, seen, known)):
            settings, local = read, None
        prior = None
        if known.statistics is not None and settings.batch_norm:
            prior = known.statistics.prior(task, seen.params, settings.batch_norm)
        return reconstruct(
            task,
            seen.params,
            seen.grads,
            # Labels that are known need no search.
            replace(settings, joint_labels=known.labels is None),
            shape=seen.shape,
            seed=options.seed,
            first_target=options.first_target,
            labels=known.labels,
            low=known.low,
            high=known.high,
            local=local,
            prior=prior,
            snapshots=options.snapshots,
            progress=options.progress,
            checkpoint=options.checkpoint,
        )


def settings_against(
    settings: SearchSettings, local: LocalSteps | None, *, unknown: tuple[str, ...] = ()
) -> SearchSettings:
    """Return the search against the update of these steps; None stands for a gradient.

    The size of an update tells nothing where the rate is not known. Steps of Adam and its like
    leave little more than signs of coordinates, as a defense by signs does, and need its prior.
    """
    if local is None:
        return settings
    if RATE in unknown:
        settings = replace(settings, rescale=False)
    one = first_step(local.recipe) is not None
    return settings if local.recipe.rule.linear or one else smoother(settings)


def bounded(
    settings: SearchSettings, model: nn.Module, seen: ObservedUpdates, known: Knowledge
) -> SearchSettings | None:
    """Return the search by the bounds of gradients that one step of Adam or its like shows.

    None for any other training, and where the attacker does not know the rate.
    """
    local = known.steps
    if local is None or known.unknown or local.clients > 1 or not first_step(local.recipe):
        return None
    inner = objective_of(settings.objective, model)
    objective = Between(inner, local.recipe, seen.params, local.digits)
    return replace(settings, objective=objective, rescale=False, slope="exact")


@dataclass(frozen=True)
class SearchName:
    """A preset as the catalogue of methods names it: its keys are the fields of its settings.

    Attributes:
        name: name of the preset.
    """

    name: str

    @property
    def __signature__(self) -> inspect.Signature:
        """The keys that users may set, with their defaults, and what ``method_of`` supplies."""
        settings, one = PRESETS[self.name], inspect.Parameter
        values = {**vars(settings), **vars(settings.objective)}
        kinds = _kinds_of(SearchSettings)
        if isinstance(settings.objective, Weights):
            kinds |= _kinds_of(type(settings.objective))
        supplied = inspect.signature(self.__call__).parameters.values()
        keys = [given for given in supplied if given.kind == one.KEYWORD_ONLY]
        for key, kind in kinds.items():
            keys.append(one(key, one.KEYWORD_ONLY, default=values[key], annotation=kind))
        return inspect.Signature(keys)

    def __call__(
        self,
        *,
        iterations: int | None = None,
        restarts: int = 1,
        are_images: bool = True,
        trained: bool = False,
        large: bool = False,
        **changed: Any,
    ) -> Search:
        """Return the search for a command that ends within minutes.

        Args:
            iterations: number of iterations; None takes 500, or the preset's where it has fewer.
            restarts: number of restarts.
            are_images: whether neighbouring values of a record are neighbouring pixels; without
                them the total variation has no weight.
            trained: as for ``agic``; loaded weights are taken for trained ones. The phase of a
                user's own model is not known, and it is taken for untrained.
            large: as for ``agic``.
            changed: other settings by name.
        """
        own = presets_for(trained=trained, large=large)[self.name]
        weights = own.objective
        if isinstance(weights, Weights):
            known = _kinds_of(type(weights))
            of_layers = {key: changed.pop(key) for key in known if key in changed}
            changed["objective"] = replace(weights, **of_layers)
        chosen = min(ITERATIONS, own.iterations) if iterations is None else iterations
        settings = replace(own, iterations=chosen, restarts=restarts, **changed)
        if not are_images:
            settings = replace(settings, total_variation=0.0)
        return Search(settings, follows_paper=self.name == "agic")


DLG, DLG_ADAM, IDLG, INVERTING_GRADIENTS, AGIC, LEAKGAUGE = map(SearchName, PRESETS)


def _kinds_of(settings: type) -> dict[str, type]:
    """Return the settings that a text may set; the name sets the objective."""
    return {
        name: _kind(hint)
        for name, hint in get_type_hints(settings).items()
        if name not in ("objective", "iterations", "restarts")
    }


def _kind(hint: Any) -> type:
    """Return the type of a value, also of one that may be None; names are words."""
    if get_origin(hint) is Literal:
        return str
    (kind,) = (one for one in get_args(hint) or (hint,) if one is not NoneType)
    assert isinstance(kind, type)
    return kind
