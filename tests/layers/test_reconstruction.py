"""Images rebuilt from some layers: what the attacker sees, and what it gains from it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.gradients.walk import walk
from leakgauge.inversion.metrics.similarity import psnr, ssim
from leakgauge.inversion.search import presets
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from leakgauge.layers import reconstruction
from leakgauge.layers.reconstruction import LayersRebuilt, rebuild_from_layers, seeing
from leakgauge.models import build

SIDE = 12


@pytest.fixture(scope="module")
def task() -> Task:
    rng = torch.Generator().manual_seed(0)
    model = build("lenet", channels=1, classes=4, side=SIDE, init="wide-uniform", generator=rng)
    return Task(model, nn.functional.cross_entropy)


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor]:
    rows = torch.linspace(0, 1, SIDE)
    x = torch.stack([rows.outer(rows), rows.flip(0).outer(rows)])[:, None]
    return x, torch.tensor([2, 0])


def rebuild(task: Task, images: tuple, *sets: tuple[str, ...], **changed) -> list[LayersRebuilt]:
    settings = preset("idlg", **{"iterations": 30} | changed)
    return rebuild_from_layers(
        task, params_of(task.model), *images, sets, settings=settings, seed=0
    )


LAYERS = ("0", "2", "4", "7")


def test_the_whole_network_is_plain_idlg(task, images) -> None:
    """Against the room's own search with the true labels, which iDLG always finds."""
    x, y = images
    (found,) = rebuild(task, images, LAYERS, iterations=2, inner=6)
    params = params_of(task.model)
    sent = batch_gradients(task, params, x[:, None], y[:, None])
    wanted = reconstruct(
        task, params, sent, preset("idlg", iterations=2, inner=6), shape=(1, 1, SIDE, SIDE), seed=0,
        labels=y[:, None],
    )  # fmt: skip
    assert found.reads_label
    assert found.labels.tolist() == y.tolist()
    torch.testing.assert_close(found.x, wanted.x[:, 0].clamp(0, 1))
    torch.testing.assert_close(found.loss, wanted.loss)


@pytest.mark.parametrize("layers", [("0",), ("4", "2"), ("0", "7")])
def test_nothing_of_the_other_layers_is_used(layers, task, images, monkeypatch) -> None:
    """Other gradients there give the same images; other gradients here do not."""
    (before,) = rebuild(task, images, layers, iterations=1, inner=3)

    def changed(here: bool) -> Callable:
        def gradients(*given, **more):
            sent = batch_gradients(*given, **more)
            return {
                name: leaf + 1e-2 if (name.partition(".")[0] in layers) == here else leaf
                for name, leaf in sent.items()
            }

        return gradients

    for here in (False, True):
        monkeypatch.setattr(reconstruction, "batch_gradients", changed(here))
        (after,) = rebuild(task, images, layers, iterations=1, inner=3)
        assert torch.equal(before.x, after.x) != here
        assert torch.equal(before.loss, after.loss) != here


@pytest.mark.parametrize("layers", [("0",), ("0", "2", "4")])
def test_without_the_output_layer_the_label_is_searched_for(
    layers, task, images, monkeypatch
) -> None:
    given = []

    def watched(*args, **more):
        given.append((args[3].joint_labels, more["labels"]))
        return reconstruct(*args, **more)

    monkeypatch.setattr(presets, "reconstruct", watched)
    found, known = rebuild(task, images, layers, (*layers, "7"), iterations=1, inner=3)
    assert [found.reads_label, known.reads_label] == [False, True]
    assert given[0] == (True, None)  # no label reaches the search
    assert given[1][0] is False
    assert given[1][1].tolist() == [[2], [0]]


def test_the_loss_is_the_distance_at_these_layers(task, images) -> None:
    """Computed anew at the image and label that the search gives, from the seen layers alone."""
    x, y = images
    (found,) = rebuild(
        task, images, ("2", "7"), iterations=2, inner=6, boxed=True
    )  # nothing is cut
    params = params_of(task.model)
    raw = batch_gradients(task, params, found.x[:, None], found.labels[:, None])
    true = batch_gradients(task, params, x[:, None], y[:, None])
    names = ["2.weight", "2.bias", "7.weight", "7.bias"]
    wanted = sum((raw[n] - true[n]).square().flatten(1).sum(1) for n in names)
    torch.testing.assert_close(found.loss, wanted)
    everywhere = sum((raw[n] - true[n]).square().flatten(1).sum(1) for n in raw)
    assert bool((everywhere > wanted).all())


def test_the_scores_are_those_of_the_images(task, images) -> None:
    x, _ = images
    (found,) = rebuild(task, images, ("0", "7"), iterations=2, inner=6)
    assert float(found.x.min()) >= 0
    assert float(found.x.max()) <= 1
    torch.testing.assert_close(found.psnr, psnr(found.x, x))
    torch.testing.assert_close(found.ssim, ssim(found.x, x))
    torch.testing.assert_close(found.mse, 10 ** (-found.psnr / 10))


@pytest.mark.slow
def test_the_first_layer_gives_more_than_the_last(task, images) -> None:
    """The last layer holds its own input alone, a mean of few features of the image."""
    first, last, both = rebuild(task, images, ("0",), ("7",), ("0", "7"), iterations=30)
    assert float(both.psnr.mean()) > float(last.psnr.mean()) + 5
    assert float(first.psnr.mean()) > float(last.psnr.mean())


@dataclass(frozen=True)
class Stubborn:
    def __call__(self, guess, observed):
        return torch.zeros(1)


def test_what_cannot_be_asked_is_one_line(task, images) -> None:
    x, y = images
    for sets, message in (
        ([("conv1",)], "the model has no layer 'conv1'"),
        ([("0",), ()], "a set of layers is empty"),
    ):
        with pytest.raises(InputError, match=message):
            rebuild(task, images, *sets)
    with pytest.raises(InputError, match="pixels run from 0 to 255; expected 0 to 1"):
        rebuild(task, (255 * x, y), ("0",))
    with pytest.raises(InputError, match="SSIM needs"):
        rebuild(task, (x[:, :, :8], y), ("0",))
    with pytest.raises(InputError, match="cannot leave out layers"):
        rebuild(task, images, ("0",), objective=Stubborn())


def test_each_objective_of_a_preset_leaves_layers_out(task) -> None:
    names = tuple(walk(task)[1].parameters)
    weighted = [weights.objective(task.model) for weights in (LayerWeights(), DepthWeights())]
    rng = torch.Generator().manual_seed(1)
    params = params_of(task.model)
    guess, sent = (
        {name: torch.randn(2, *leaf.shape, generator=rng) for name, leaf in params.items()}
        for _ in range(2)
    )
    for objective in (SquaredError(), Cosine(), *weighted):
        part = [{name: side[name] for name in names} for side in (guess, sent)]
        torch.testing.assert_close(seeing(objective, names)(guess, sent), objective(*part))
