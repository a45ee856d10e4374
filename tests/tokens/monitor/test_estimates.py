"""Estimates in the background: from streams and from checkpoints; what fails is a line."""

import os
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import Monitor
from leakgauge.tokens.monitor import background, estimating
from leakgauge.tokens.monitor.background import Background
from leakgauge.tokens.monitor.job import StreamJob
from leakgauge.tokens.monitor.publisher import Publisher, Screen
from support.loops import QUICK, network, train

LONGEST = 300
"""Seconds after which a process that should have ended has hung, also on a busy machine."""


class Failing:
    """A job that fails."""

    def __call__(self) -> dict[str, Any]:
        raise ValueError("of the job\nwith a second line")


class Sleeping:
    """A job that takes some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self) -> dict[str, Any]:
        import os
        import time

        time.sleep(self._seconds)
        return {"pid": os.getpid(), "threads": torch.get_num_threads()}


@pytest.mark.slow
@pytest.mark.usefixtures("one_process")
def test_a_stream_gives_estimates_at_its_checkpoints() -> None:
    seen: list[tuple[dict[str, float], int]] = []
    with Monitor(
        network(),
        every=50,
        checkpoints=[120, 150],
        gather=1,
        pairs="stream",
        settings=QUICK,
        wait=120,
        log=lambda values, step: seen.append((values, step)),
    ) as monitor:
        train(monitor_model(monitor), 151)
    assert monitor.notes == []
    found = [one for one in monitor.records if "information_nats" in one]
    assert [(one["step"], one["pairs"]) for one in found] == [(120, 121), (150, 151)]
    for one in found:
        assert set(one["information_nats"]) == {"value", "low", "high"}
        assert one.keys() >= {"placebo", "critic_gap", "placebo_gap", "in_sample", "limited"}
        assert (one["token"], one["estimator"]) == ("autoencoder", "infonce")
    names = {name for values, _ in seen for name in values}
    assert names == {
        "leak/cheap",
        "leak/mi/infonce",
        "leak/mi/infonce/low",
        "leak/mi/infonce/high",
        "leak/mi/infonce/placebo",
        "leak/mi/infonce/in_sample",
        "leak/mi/infonce/unseen_below",
        "leak/gap/infonce",
        "leak/linear_gaussian",
        "leak/linear_gaussian/unseen_below",
    }
    assert {step for values, step in seen if "leak/mi/infonce" in values} == {120, 150}
    columns = list(monitor.to_pandas().columns)
    assert columns[:2] == ["step", "cheap"]
    assert {"in_sample", "unseen_below_nats"} <= set(columns)


def monitor_model(monitor: Monitor) -> nn.Module:
    return monitor._observer.taps._model


def test_figures_are_the_same_with_the_same_seed() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(200, 5, generator=rng).numpy()
    gradients = {"0": torch.randn(200, 7, generator=rng).numpy()}

    def run(seed: int) -> dict[str, Any]:
        return StreamJob(QUICK, seed, features, gradients)()

    first = run(0)
    assert first == run(0) != run(1)
    # random pairs leak nothing, so it says what it could have missed
    assert first["unseen_below_nats"] >= max(0.1, first["information_nats"]["high"])
    assert first["linear_gaussian_unseen_below_nats"] >= 0.02


@pytest.mark.calibration
@pytest.mark.slow
def test_a_stream_whose_gradients_show_the_features_has_information_and_others_none() -> None:
    def run(leaks: bool) -> dict[str, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(6, 1, bias=False))
        optimizer = torch.optim.SGD(model.parameters(), 0.0)
        with Monitor(
            model, every=10**6, checkpoints=[999], gather=1, pairs="stream", wait=120
        ) as monitor:
            for _ in range(1000):
                optimizer.zero_grad()
                model(torch.randn(4, 4)).sum().backward()
                if not leaks:
                    for leaf in model.parameters():
                        assert leaf.grad is not None
                        leaf.grad = torch.randn_like(leaf)
                optimizer.step()
        found: dict[str, Any] = monitor.records[-1]
        return found

    leaking, other = run(True), run(False)
    assert leaking["information_nats"]["low"] > 0.5
    assert (
        leaking["linear_gaussian"]["low"] > 0.5 > 0.1 > leaking["linear_gaussian_placebo"]["value"]
    )
    assert leaking["placebo"]["low"] <= 0.05
    assert other["information_nats"]["low"] <= 0 <= other["information_nats"]["high"]
    assert not leaking.keys() & {"unseen_below_nats", "linear_gaussian_unseen_below_nats"}
    assert 0.1 <= other["unseen_below_nats"] <= 1.0, "what leaks elsewhere would have been seen"
    assert abs(other["linear_gaussian"]["value"]) < 0.1


@pytest.mark.usefixtures("one_process")
def test_checkpoints_take_records_weights_and_the_loss_of_the_loop() -> None:
    model = network()

    def loss(outputs: Tensor, y: Tensor) -> Tensor:  # of this module: sent by value
        return functional.cross_entropy(outputs, y)

    with Monitor(
        model,
        every=100,
        checkpoints=[0, 45],
        pairs="checkpoint",
        loss=loss,
        settings=QUICK,
        wait=120,
    ) as monitor:
        train(model, 46, size=4, each=lambda number, x, y: monitor.step(x, y))
    assert monitor.notes == [
        'no estimate at step 0: pairs="checkpoint" needs records; call monitor.step(x, y) once a '
        "step"
    ]
    (found,) = [one for one in monitor.records if "information_nats" in one]
    assert (found["step"], found["records"]) == (45, 180)


@pytest.mark.usefixtures("one_process")
def test_a_stream_that_is_too_short_is_told() -> None:
    model = network()
    with Monitor(model, checkpoints=[20], gather=1, settings=QUICK) as monitor:
        train(model, 21)
    assert monitor.notes == [
        "no estimate at step 20: 168 records are too few; batches of 8 need 320, and 21 pairs are "
        "too few; it needs 120"
    ]


@pytest.mark.usefixtures("one_process")
def test_a_failed_estimate_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    monkeypatch.setattr(estimating, "StreamJob", lambda *given: Failing())
    with Monitor(
        model, checkpoints=[120], gather=1, pairs="stream", settings=QUICK, wait=120
    ) as monitor:
        train(model, 130)
    assert monitor.notes == ["no estimate at step 120: ValueError: of the job"]


def test_a_process_that_dies_is_a_line_and_the_next_estimate_has_a_new_one(
    lasting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that dies imports nothing; the next one is that of other tests."""
    asked: list[dict[str, Any]] = []

    def made(**given: Any) -> Any:
        asked.append(given)
        return ProcessPoolExecutor(max_workers=1) if len(asked) == 1 else lasting

    monkeypatch.setattr(background, "ProcessPoolExecutor", made)
    one = Background(waiting=2)
    assert one.submit(1, partial(os._exit, 1)) is None
    one._running[0][1].exception(LONGEST)
    assert one.ready() == [(1, "its process died (killed, or out of memory)")]
    assert one.submit(2, Sleeping(0)) is None
    ((step, found),) = one.finish(LONGEST)
    real = {"max_workers": 1, "initializer": background._begin, "env": background._ALONE}
    assert asked == [real, real]
    assert step == 2
    assert isinstance(found, dict)
    assert found["threads"] == 1


def test_one_estimate_waits_a_second_is_left_out_and_the_end_waits_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "ProcessPoolExecutor", lambda **given: Never())
    one = Background(waiting=1)
    assert one.submit(1, Sleeping(0.1)) is None
    assert one.submit(2, Sleeping(60)) is None
    assert one.submit(3, Sleeping(0)) == "the estimate of step 1 still runs"
    one._running[0][1].set_result({"information_nats": 0.1})
    done = one.finish(0.2)
    assert [step for step, _ in done] == [1, 2]
    assert done[0][1] == {"information_nats": 0.1}
    assert done[1][1] == "it did not end within 0.2 s of the loop's end; wait=60 waits longer"


class Never:
    """An executor whose jobs never end."""

    def submit(self, job: Any) -> Future[Any]:
        return Future()

    def shutdown(self, **given: Any) -> None:
        return


@pytest.mark.parametrize(("wait", "least", "most"), [(None, 0.5, 30), (0.2, 0.2, 30), (0, 0, 30)])
def test_the_end_waits_so_long_and_names_what_is_missing(
    wait: float | None,
    least: float,
    most: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By default estimates take as long as the loop, which here has none for half a second."""
    monkeypatch.setattr(background, "ProcessPoolExecutor", lambda **given: Never())
    model = network()
    with Monitor(
        model, checkpoints=[120, 130], gather=1, pairs="stream", settings=QUICK, wait=wait
    ) as monitor:
        train(model, 120)
        time.sleep(0.5)
        train(model, 11)
        began = time.monotonic()
    assert least <= time.monotonic() - began < most
    assert ("for the estimates of steps 120, 130 (wait=0" in capsys.readouterr().err) == (wait != 0)
    assert [note.partition(": it did not end within ")[0] for note in monitor.notes] == [
        "no estimate at step 120",
        "no estimate at step 130",
    ]
    assert all(note.endswith("wait=60 waits longer") for note in monitor.notes)


@pytest.mark.usefixtures("one_process")
def test_an_error_in_the_loop_waits_for_nothing_and_keeps_what_has_ended(tmp_path: Path) -> None:
    model = network()
    monitor = Monitor(
        model, checkpoints=[120], gather=1, pairs="stream", settings=QUICK, out=tmp_path / "run"
    )

    def loop() -> None:
        with monitor:
            train(model, 121)
            monitor._estimates._background._running[0][1].result(LONGEST)
            raise KeyError

    with pytest.raises(KeyError):
        loop()
    assert any("information_nats" in one for one in monitor.records)


def test_an_alert_is_raised_by_the_lower_end_alone() -> None:
    def figures(low: float, value: float) -> dict[str, Any]:
        ends = {"value": value, "low": low, "high": value + 0.1}
        none = {"value": 0.0, "low": -0.1, "high": 0.1}
        return {
            "information_nats": ends,
            "placebo": none,
            "linear_gaussian": none,
            "critic_gap": ends,
            "in_sample": 1.0,
            "estimator": "infonce",
        }

    alerts: list[str] = []
    screen = Screen(False)
    publishing = Publisher(screen, None, None, 0.2, alerts.append)
    publishing.estimates(10, figures(low=0.1, value=0.5))
    assert alerts == []
    publishing.estimates(20, figures(low=0.3, value=0.5))
    assert len(alerts) == 1
    assert alerts[0].startswith("alert: at step 20 gradients leak at least 0.30 nats of the data")
    assert screen.said == alerts
    assert [one["step"] for one in publishing.entries() if "alert" in one] == [20]


def test_an_estimate_that_finds_nothing_says_what_it_could_have_missed() -> None:
    """In the live line, in the record and in the log."""
    none = {"value": 0.0, "low": -0.1, "high": 0.1}
    figures = {
        "information_nats": none,
        "unseen_below_nats": 0.3,
        "placebo": none,
        "linear_gaussian": none,
        "linear_gaussian_unseen_below_nats": 0.05,
        "critic_gap": none,
        "in_sample": 1.0,
        "estimator": "infonce",
    }
    logged: list[dict[str, float]] = []
    publishing = Publisher(Screen(False), None, lambda one, _: logged.append(one), None, None)
    publishing.estimates(10, figures)
    assert "(-0.10 to 0.10), could not have seen less than 0.30, placebo" in publishing.line(10)
    assert logged[0]["leak/mi/infonce/unseen_below"] == 0.3
    assert logged[0]["leak/linear_gaussian/unseen_below"] == 0.05
    assert [one["unseen_below_nats"] for one in publishing.entries()] == [0.3]
    seen = {name: one for name, one in figures.items() if "unseen" not in name}
    publishing.estimates(20, seen)
    assert "could not have seen" not in publishing.line(20)


def test_an_error_of_log_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    model = network()
    with Monitor(model, checkpoints=0, log=lambda values, step: 1 / 0) as monitor:
        train(model, 21)
    assert monitor.notes == ["log failed (ZeroDivisionError: division by zero)"]
    assert capsys.readouterr().err.count("log failed") == 1
