"""Records behind gradients of losses without classes: the labels must be known."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from leakgauge import Dataset, InputError, Task, Update
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.labels.inference import infer_labels
from leakgauge.inversion.run.received import prepare_received
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.presets import PRESETS, Search, preset

Case = tuple[Task, Tensor, Tensor]


def case(loss: str, outputs: int) -> Case:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Sigmoid(), nn.Linear(16, outputs))
    y = torch.tensor([[1.0, 0.0, 1.0]]) if loss == "bce" else torch.tensor([0.7])
    return Task(model, loss), torch.randn(1, 4), y


CASES = [("mse", 1), ("bce", 3)]


@pytest.mark.parametrize(("loss", "outputs"), CASES)
def test_a_record_is_rebuilt_where_its_numbers_are_known(loss: str, outputs: int) -> None:
    task, x, y = case(loss, outputs)
    params = params_of(task.model)
    seen = batch_gradients(task, params, x[None], y[None])
    settings = preset("idlg", iterations=60)
    found = reconstruct(task, params, seen, settings, shape=(1, 4), labels=y[None], seed=0)
    torch.testing.assert_close(found.x[0], x, atol=0.02, rtol=0)
    with pytest.raises(InputError, match=r"or its loss has no classes; pass the labels \(as known"):
        reconstruct(task, params, seen, PRESETS["dlg"], shape=(1, 4), seed=0)


@pytest.mark.parametrize(("loss", "outputs"), [("mse", 3), ("bce", 3)])
def test_labels_are_inferred_from_cross_entropy_alone(loss: str, outputs: int) -> None:
    task, x, _ = case(loss, outputs)
    params, y = params_of(task.model), torch.tensor([1])
    classes = Task(task.model, cross_entropy)
    seen = batch_gradients(classes, params, x[None], y[None])
    assert infer_labels(classes, params, seen, 1).labels.tolist() == [[1]]
    with pytest.raises(InputError, match="the task has another loss; pass the labels") as refused:
        infer_labels(task, params, seen, 1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("loss", "outputs"), CASES)
def test_an_update_keeps_numbers_as_labels(loss: str, outputs: int, tmp_path: Path) -> None:
    task, x, y = case(loss, outputs)
    if loss == "bce":  # torch's own takes floating targets only
        task = Task(task.model, binary_cross_entropy_with_logits)
    params = params_of(task.model)
    seen = batch_gradients(task, params, x[None], y[None])
    values = {name: leaf[0] for name, leaf in seen.items()}
    Update("gradient", values, params, batch_size=1, records=1, labels=y).save(tmp_path / "u")
    update = Update.load(tmp_path / "u")
    assert update.labels is not None
    assert torch.equal(update.labels, y)
    public = Dataset(torch.randn(50, 4), torch.randn(50, *y.shape[1:]))
    idlg = Search(preset("idlg", iterations=60))
    found = prepare_received(task, public, update, idlg, labels="known").rebuild()
    torch.testing.assert_close(found.x, x, atol=0.02, rtol=0)
    with pytest.raises(InputError, match=r"another loss|one output"):
        prepare_received(task, public, update, idlg)
