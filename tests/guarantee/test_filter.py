"""Filters as mechanisms of an audit, against plain clipping and noise."""

import json
from pathlib import Path

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.guarantee.checking import check, claimed_by
from leakgauge.guarantee.filter import filter_of, follows_from, is_filter
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.privacy.estimate import epsilon_of_mu
from support import command, gated_audit

FLIP = "local-dp:clip=1,sensitivity=0.0001,epsilon=10,delta=1e-05"
FAIR = "local-dp:clip=1,sensitivity=3,epsilon=2,delta=1e-05"


def test_releases_are_the_clipped_mean_plus_the_noise_of_the_filter() -> None:
    grads = {"w": torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)}
    streams = [torch_stream(0, "release", n) for n in range(4000)]
    found = filter_of(FAIR).several(grads, streams)["w"]
    mean = torch.tensor([1.5, 2.0], dtype=torch.float64)
    std = follows_from(FAIR).noise
    assert std == pytest.approx(3 * 4.8448 / 2, rel=1e-4)
    assert torch.allclose(found.mean(dim=0), mean / mean.norm(), atol=5 * std / 4000**0.5)
    assert float(found.std()) == pytest.approx(std, rel=0.05)


def test_one_release_is_that_of_several() -> None:
    grads = {"w": torch.randn(1, 5, generator=torch_stream(0, "w"))}
    alone = filter_of(FAIR)(grads, torch_stream(0, "a"))["w"]
    streams = [torch_stream(0, name) for name in ("b", "a")]
    assert torch.equal(filter_of(FAIR).several(grads, streams)["w"][1], alone)


def test_a_filter_of_one_record_is_the_same_dpsgd() -> None:
    grads = {"w": torch.tensor([[30.0, 40.0]], dtype=torch.float64)}
    own = filter_of("dpsgd:clip=2,noise=1e-9")(grads, torch_stream(0, "a"))["w"]
    dpsgd = DPSGDMechanism(2.0, 1e-9)(grads, torch_stream(0, "a"))["w"]
    assert torch.allclose(own, dpsgd, atol=1e-7)


@pytest.mark.parametrize("text", ["dpsgd", "opacus", "my_module:release"])
def test_other_mechanisms_are_no_filters(text: str) -> None:
    assert not is_filter(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("percentile-privacy", "gives no differential privacy: it drops and cuts coordinates"),
        ("noise:std=1", "adds noise to updates of unlimited norm"),
        ("svt", "leakgauge promise"),
    ],
)
def test_a_filter_without_a_gaussian_promise_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check(GuaranteeSpec(mechanism=text))


@pytest.mark.parametrize("given", [{"clip": 2.0}, {"noise": 1.0}, {"rounds": 1}])
def test_settings_that_contradict_the_filter_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(InputError, match="leave --"):
        check(GuaranteeSpec(mechanism=FLIP, **given))  # type: ignore[arg-type]
    own = claimed_by(GuaranteeSpec(mechanism=FLIP))
    check(GuaranteeSpec(mechanism=FLIP, clip=own.clip, noise=own.noise))


def audit(folder: Path, mechanism: str, *words: object) -> command.Ended:
    table = gated_audit.write_people(folder)
    return command.run(
        "guarantee", table, "--attribute", "smokes", "--label", "income", "--canary", "random",
        "--mechanism", mechanism, "--trials", 400, "--out", folder / "run", *words,
    )  # fmt: skip


def test_the_verdict_has_claims_follows_and_shows(tmp_path: Path) -> None:
    ended = audit(tmp_path, FLIP)
    assert ended.returncode == 0, ended.stderr
    assert "claims epsilon 10, but its sensitivity 0.0001 is below its clip 1" in ended.stderr
    assert "The claim does not hold" in ended.stdout
    assert "The filter claims epsilon 10. Its releases show at least" in ended.stdout
    assert "From its noise follows: epsilon is above a million" in ended.stdout
    assert "sensitivity=2.07" in ended.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Claimed by the filter's own parameters" in page.replace("&#39;", "'")


def test_a_fair_claim_is_not_refuted(tmp_path: Path) -> None:
    ended = audit(tmp_path, FAIR, "--json")
    assert ended.returncode == 0, ended.stderr
    epsilon = json.loads(ended.stdout)["epsilon"]
    std = 3 * 4.8448 / 2
    assert epsilon["claimed"] == 2
    assert epsilon["mechanism_exact"] == pytest.approx(epsilon_of_mu(2 / std, 1e-5), rel=1e-3)
    assert epsilon["gaussian"]["low"] <= epsilon["mechanism_exact"] < 2
    assert "claims epsilon" not in ended.stderr


def test_dpsgd_still_needs_clip_and_noise(tmp_path: Path) -> None:
    ended = audit(tmp_path, "dpsgd")
    assert ended.returncode == 2
    assert "--clip is missing" in ended.stderr
