"""Attribute inference by an adversary that knows all other features of the batch."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Column, Dataset, Grads, Schema, Task
from leakgauge.data import Roles, encode, make_table, split_records
from leakgauge.data.counterfactual import with_own_values, with_value
from leakgauge.defenses import Defense, Transform, none
from leakgauge.gradients import params_of
from leakgauge.inference.adversaries.adversary import Candidates
from leakgauge.inference.adversaries.matching import Matching, attribute_candidates
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.run import audit, make_stage
from leakgauge.inference.spec import InferenceSpec
from leakgauge.models import mlp
from leakgauge.results.roc import auroc
from leakgauge.training.observation import sent_gradients
from support.defenses import gaussian
from support.synthetic import records

UNIFORM = np.log([0.5, 0.5])
MAX_BYTES = 2**26
ROLES = Roles(label="ill", secrets=("sex", "flag", "age"), bins={"age": 3})


def frame(n: int = 240, seed: int = 0) -> pd.DataFrame:
    rng = stream(seed, "frame")
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, size=n).astype(float),
            "sex": rng.choice(["d", "f", "m"], size=n, p=[0.2, 0.4, 0.4]),
            "flag": rng.choice([1, 4], size=n),
            "weight": rng.normal(70, 10, size=n),
            "ill": rng.integers(2, size=n),
        }
    )


def encoded(table: pd.DataFrame, fit_on: int = 200) -> Dataset:
    rows = torch.arange(fit_on)
    made = make_table(table, ROLES)
    return encode(made, fit_on=rows, keep=("sex", "flag", "age"), dtype=torch.float64)


# --- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "values"), [("sex", ["d", "f", "m"]), ("flag", [1, 4])], ids=["category", "1d"]
)
def test_altered_is_what_encoding_an_altered_table_gives(secret: str, values: list) -> None:
    """Rows to learn the encoding from stay; the others are set to the value, in the table."""
    table = frame()
    data = encoded(table)
    for code, value in enumerate(values):
        other = table.copy()
        other.loc[200:, secret] = value
        expected = encoded(other).rows(torch.arange(200, 240))
        found = with_value(data, secret, code).rows(torch.arange(200, 240))
        assert torch.equal(found.x, expected.x)
        assert torch.equal(found.secrets[secret], expected.secrets[secret])
        assert torch.equal(found.y, expected.y)
    assert torch.equal(data.x, encoded(table).x)  # the caller's records are as they were


def test_a_missing_mark_and_an_unseen_category_are_zero() -> None:
    column = Column("sex", "category", 1, 4, ("f", "m"), missing=True)
    schema = Schema((column,), "ill", ("0", "1"), {"sex": ("d", "f", "m")})
    x, codes = torch.tensor([[5.0, 0.0, 0.0, 1.0]]), torch.tensor([1])
    data = Dataset(x, codes, {"sex": codes}, schema=schema)
    assert with_value(data, "sex", 2).x.tolist() == [[5.0, 0.0, 1.0, 0.0]]
    assert with_value(data, "sex", 0).x.tolist() == [[5.0, 0.0, 0.0, 0.0]]


def trials(data: Dataset, secret: str, n: int = 60, size: int = 4, seed: int = 0) -> Trials:
    """Return batches of records with the same secret."""
    rng = stream(seed, "trials")
    codes = data.secrets[secret].numpy()
    drawn = rng.integers(codes.max() + 1, size=n)
    rows = np.stack([rng.choice(np.flatnonzero(codes == one), size=size) for one in drawn])
    return Trials(torch.from_numpy(drawn), torch.from_numpy(rows), torch.arange(n), data)


def test_each_trial_has_its_own_batch_under_every_value() -> None:
    data = encoded(frame())
    played = trials(data, "sex")
    told = attribute_candidates(played, "sex")
    assert told.index.shape == (60, 3)
    for trial in range(0, 60, 7):
        for code in range(3):
            batch = told.index[trial, code]
            expected = with_value(data, "sex", code).rows(played.rows[trial])
            assert torch.equal(told.pool.x[told.rows[batch]], expected.x)
            assert torch.equal(told.pool.y[told.rows[batch]], expected.y)
            assert int(told.secret[batch]) == code
        true = told.rows[told.index[trial, played.secret[trial]]]
        assert torch.equal(told.pool.x[true], data.x[played.rows[trial]])


def test_a_value_that_only_the_schema_names_is_no_candidate() -> None:
    data = encoded(frame())
    assert attribute_candidates(trials(data, "sex"), "sex", 2).index.shape == (60, 2)
    two = data.rows(torch.nonzero(data.secrets["sex"] < 2).flatten())
    split = split_records(two.secrets["sex"], shadow=len(two) // 3, rng=stream(0, "split"))
    settings = InferenceSpec(secret="sex", batch_size=2, rounds=1, trials=100)
    model = mlp(two.x.shape[1], 2, (4,), generator=torch_stream(0, "model")).double()
    stage = make_stage(
        "attribute",
        Task(model, cross_entropy),
        two,
        split,
        attacks=[Matching()],
        spec=settings,
    )
    assert len(stage.game.value_names) == 2
    assert {one.metric for one in audit(stage)} >= {"auroc"}


@pytest.mark.parametrize(
    ("data", "secret", "says"),
    [
        (records(1.0), "s", "do not say where it stands"),
        (encoded(frame()), "ill", "'ill', but the data do not say where"),
    ],
)
def test_refusals(data: Dataset, secret: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        with_value(data, secret, 0)


def test_a_range_of_numbers_stands_for_its_median_outside_of_training() -> None:
    data = encoded(frame())
    column = data.schema.column("age")
    for code, typical in enumerate(column.typical):
        others = torch.arange(len(data)) >= 200
        rows = (data.secrets["age"] == code) & others
        assert typical == float(data.x[rows, column.start].median())
        filled = with_value(data, "age", code)
        assert bool((filled.x[:, column.start] == typical).all())
    own = with_own_values(data, "age")
    expected = torch.tensor(column.typical, dtype=torch.float64)[data.secrets["age"]]
    assert torch.equal(own.x[:, column.start], expected)
    assert with_own_values(data, "sex") is data


# --- the adversary --------------------------------------------------------------------------------


def bench(data: Dataset, defense: Defense, secret: str = "sex", hidden: int = 7) -> Shadow:
    inputs, values = data.x.shape[1], int(data.secrets[secret].max()) + 1
    model = mlp(inputs, 2, (hidden,), generator=torch_stream(0, "model")).double()
    task = Task(model, cross_entropy)
    return Shadow(task, params_of(model), data, secret, values, 4, MAX_BYTES, defense)


def sent(shadow: Shadow, data: Dataset, rows: torch.Tensor, defense: Defense) -> Grads:
    chunks = sent_gradients(
        shadow.task, shadow.params, data, rows, defense=defense, noise_seed=3, max_bytes=2**40
    )
    return next(chunks)


def played(defense: Defense, n: int = 60, secret: str = "sex"):
    """Fitted, what it said, and the trials."""
    data = encoded(frame())
    shadow = bench(encoded(frame(seed=1)), defense, secret)
    game = trials(data, secret, n)
    told = attribute_candidates(game, secret)
    prior = np.full(shadow.values, -np.log(shadow.values))
    fitted = Matching(50).fit(shadow, prior, rng=stream(0, "fit"))
    seen = sent(shadow, data, game.rows, defense)
    held = sent(shadow, told.pool, told.rows, none())
    said = fitted.log_posterior(seen, Candidates(held, told.index))
    return fitted, said, game, seen, held, told


def test_a_number_is_placed_in_its_range() -> None:
    """The candidate's gradient is not the batch's own, and the log-odds say how far it may be."""
    fitted, said, game, *_ = played(none(), secret="age")
    right = (said.argmax(axis=1) == game.secret.numpy()).mean()
    assert right > 0.8
    assert fitted.std > 10 * played(none(), secret="sex")[0].std
    assert np.abs(said).max() < 1e4


def test_without_a_defense_the_true_value_is_found_always() -> None:
    _, said, game, *_ = played(none())
    assert np.isfinite(said).all()
    assert (said.argmax(axis=1) == game.secret.numpy()).all()
    for value in range(3):
        truth = (game.secret == value).numpy()
        others = np.delete(said, value, axis=1).max(axis=1)
        assert auroc(truth, said[:, value] - others) == 1.0


def test_posterior_is_the_likelihood_of_the_noise() -> None:
    """Literally: the product of normal densities over all coordinates, then Bayes."""
    fitted, said, _, seen, held, told = played(gaussian(0.2), n=8)
    assert fitted.std == pytest.approx(0.2)
    for trial in range(8):
        likelihood = []
        for code in range(3):
            product = 1.0
            for name, leaf in seen.items():
                gap = (leaf[trial] - held[name][told.index[trial, code]]).flatten()
                for one in gap.tolist():
                    product *= np.exp(-(one**2) / (2 * 0.2**2))
            likelihood.append(product)
        expected = np.array(likelihood) / sum(likelihood)
        assert np.exp(said[trial]) == pytest.approx(expected)


@pytest.mark.calibration
def test_under_strong_noise_the_posterior_is_calibrated() -> None:
    """Sure in so many percent of the trials, right in so many."""
    _, said, game, *_ = played(gaussian(0.3), n=3000)
    sure = np.exp(said).max(axis=1).mean()
    right = (said.argmax(axis=1) == game.secret.numpy()).mean()
    assert 0.4 < right < 0.95
    assert right == pytest.approx(sure, abs=0.04)


def test_candidates_of_equal_gradient_share_the_posterior() -> None:
    """A network that does not read the attribute gives none away."""
    data = encoded(frame())
    shadow = bench(data, none())
    column = data.schema.column("sex")
    deaf = {name: leaf.clone() for name, leaf in shadow.params.items()}
    for leaf in deaf.values():
        leaf[...] = 0.0  # no unit is active: neither inputs nor hidden units have a gradient
    shadow = replace(shadow, params=deaf)
    game = trials(data, "sex")
    told = attribute_candidates(game, "sex")
    fitted = Matching(20).fit(shadow, np.log([0.2, 0.3, 0.5]), rng=stream(0, "fit"))
    seen = sent(shadow, data, game.rows, none())
    said = fitted.log_posterior(
        seen, Candidates(sent(shadow, told.pool, told.rows, none()), told.index)
    )
    assert column.stop - column.start == 3
    assert np.exp(said) == pytest.approx(np.tile([0.2, 0.3, 0.5], (60, 1)))


def test_gradients_of_zero_leave_the_prior() -> None:
    zero = {"w": torch.zeros(3, 4)}
    shadow = bench(encoded(frame()), none())
    still = replace(shadow, task=Task(shadow.task.model, lambda out, y: 0.0 * out.sum()))
    fitted = Matching(10).fit(still, UNIFORM, rng=stream(0, "fit"))
    said = fitted.log_posterior(zero, Candidates(zero, torch.tensor([[0, 1], [1, 2], [2, 0]])))
    assert said == pytest.approx(np.log(np.full((3, 2), 0.5)))


class Jitter(Transform):
    """Adds noise that is not called Gaussian: s must be found out."""

    def __call__(self, grads: Grads, rngs) -> Grads:
        return {
            name: torch.stack(
                [
                    row + 0.3 * (torch.rand(row.shape, generator=rng, dtype=row.dtype) - 0.5)
                    for row, rng in zip(leaf, rngs, strict=True)
                ]
            )
            for name, leaf in grads.items()
        }


def test_other_noise_is_estimated_on_shadow_batches() -> None:
    """The difference of two draws of U(-0.15, 0.15) has the variance 2 * 0.3 ** 2 / 12."""
    shadow = bench(encoded(frame()), replace(none(), name="jitter", update=Jitter()))
    fitted = Matching(200).fit(shadow, np.log([1 / 3] * 3), rng=stream(0, "fit"))
    assert fitted.std == pytest.approx((2 * 0.3**2 / 12) ** 0.5, rel=0.03)


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="number of shadow batches is 0"):
        Matching(0)
