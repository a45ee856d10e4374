"""Filters as mechanisms of an audit, against plain clipping and noise."""

import json
import re
from pathlib import Path

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.defenses.claims import statement_of
from leakgauge.guarantee.checking import check, claimed_by, neighbours_of
from leakgauge.guarantee.filter import filter_of, is_filter
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.guarantee.metrics import APART, CLAIMED, EPSILON
from leakgauge.guarantee.report.audited import AuditedGuarantee
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.promises import Neighbours, Relation
from leakgauge.results.measurements import CellContext, Estimate
from support import command, gated_audit

FLIP = "local-dp:clip=1,sensitivity=0.0001,epsilon=10,delta=1e-05"
FAIR = "local-dp:clip=1,sensitivity=3,epsilon=2,delta=1e-05"


def test_releases_are_the_clipped_mean_plus_the_noise_of_the_filter() -> None:
    grads = {"w": torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)}
    streams = [torch_stream(0, "release", n) for n in range(4000)]
    found = filter_of(FAIR).several(grads, streams)["w"]
    mean = torch.tensor([1.5, 2.0], dtype=torch.float64)
    std = filter_of(FAIR).defense.noise_std
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


@pytest.mark.parametrize("text", ["vib", "perturb"])
def test_defenses_that_change_no_update_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no filter of what is sent"):
        check(GuaranteeSpec(mechanism=text))


@pytest.mark.parametrize(
    "given", [{"clip": 2.0}, {"noise": 1.0}, {"rounds": 1}, {"server_noise": 1.0}]
)
def test_settings_that_contradict_the_filter_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(InputError, match="leave"):
        check(GuaranteeSpec(mechanism=FLIP, **given))  # type: ignore[arg-type]
    own = filter_of(FLIP).dpsgd
    assert own is not None
    check(GuaranteeSpec(mechanism=FLIP, clip=own.clip, noise=own.noise))


def test_the_server_s_noise_makes_clipping_a_mechanism() -> None:
    alone, served = (filter_of("fixed-clipping:norm=2", noise) for noise in (None, 1.5))
    assert alone.dpsgd is None
    assert served.dpsgd == DPSGDMechanism(2.0, 3.0)
    grads = {"w": torch.zeros(1, 10_000)}
    assert float(served(grads, torch_stream(0, "a"))["w"].std()) == pytest.approx(3.0, rel=0.05)
    for text in (FAIR, "sign"):
        with pytest.raises(InputError, match="leave the server's noise out"):
            filter_of(text, 1.0)


@pytest.mark.parametrize(
    ("text", "unit"), [("svt", "client"), (FAIR, "client"), ("dpsgd:clip=1,noise=1", "record"),
                       ("dpsgd", "record")],
)  # fmt: skip
def test_the_unit_is_that_of_the_clip(text: str, unit: str) -> None:
    assert str(neighbours_of(GuaranteeSpec(mechanism=text))) == f"{unit}, replaced"
    asked = GuaranteeSpec(mechanism=text, unit="record", relation="add")
    assert str(neighbours_of(asked)) == "record, added or removed"
    assert claimed_by(asked) == claimed_by(GuaranteeSpec(mechanism=text))


def audit(folder: Path, mechanism: str, *words: object, out: str = "run") -> command.Ended:
    table = gated_audit.write_people(folder)
    return command.run(
        "guarantee", table, "--attribute", "smokes", "--label", "income", "--canary", "random",
        "--mechanism", mechanism, "--trials", 400, "--out", folder / out, *words,
    )  # fmt: skip


def test_the_verdict_has_claims_follows_and_shows(tmp_path: Path) -> None:
    ended = audit(tmp_path, FLIP)
    assert ended.returncode == 0, ended.stderr
    assert "claims epsilon 10, but its sensitivity 0.0001 is below its clip 1" in ended.stderr
    assert "The claim does not hold" in ended.stdout
    assert "The filter claims epsilon 10 at delta 1e-05. From its noise follows: " in ended.stdout
    assert "above a million for the worst one, at delta 1e-05 (client, replaced; " in ended.stdout
    shown = re.search(r"Its releases show at least (\S+) at delta 1e-05 \(99 %", ended.stdout)
    assert shown is not None
    assert float(shown[1]) > 10
    assert "which refutes the claim" in ended.stdout
    assert "sensitivity=2.07" in ended.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Claimed by the filter's own parameters" in page.replace("&#39;", "'")
    assert "by the Gaussian test" in page


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("percentile-privacy", "adds no noise"),
        ("noise:std=1", "updates of unlimited norm"),
        ("quantise:levels=4", "no noise of known size"),
        ("sign", "it sends signs"),
        ("fixed-clipping:norm=1", "the server"),
        ("prune:rate=0.5", "it drops coordinates"),
    ],
)
def test_a_filter_without_a_promise_is_a_result(text: str, why: str, tmp_path: Path) -> None:
    ended = audit(tmp_path, text, "--hidden", 8, "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert why in found["why"]
    assert not found["private"]
    assert not found["violated"]
    assert "mechanism_exact" not in found["epsilon"]
    assert "gaussian_test" in found["epsilon"] or text != "noise:std=1"
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No differential privacy" in page
    advised = re.search(r"local-dp:clip=1,sensitivity=[0-9.]+,epsilon=8,delta=1e-05", page)
    assert advised is not None
    promised = statement_of(advised.group(), batch_size=1).mechanism
    assert promised is not None
    assert 7.9 < epsilon_of_mu(2 * promised.clip / promised.noise_std, 1e-5) <= 8
    assert not re.search(r"\b(nan|inf|None)\b", re.sub("<svg.*?</svg>", "", page, flags=re.S))
    assert command.run("card", tmp_path / "run", "--out", tmp_path).returncode == 0


SVT = "svt:fraction=0.5,epsilon=0.1,noise=2,gamma=1e-3"


def test_the_sparse_vector_is_audited_by_its_own_noise(tmp_path: Path) -> None:
    ended = audit(tmp_path, SVT, "--hidden", 8, "--releases", 3, "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    epsilon = found["epsilon"]
    assert (found["deciding"], found["refutes_claim"]) == ("epsilon_laplace_test", True)
    assert epsilon["claimed"] == 0.1 < epsilon["laplace_test"]["low"] <= epsilon["pair_pure"]
    assert epsilon["estimate"]["low"] <= epsilon["pair_exact"] <= epsilon["pair_pure"]
    assert epsilon["training"] > epsilon["mechanism_exact"]
    assert not found["violated"]


def test_unit_relation_and_releases_are_in_sentence_and_figures(tmp_path: Path) -> None:
    words = ("--unit", "client", "--relation", "add", "--releases", 9)
    epsilon = json.loads(audit(tmp_path, FAIR, *words, "--json").stdout)["epsilon"]
    std = 3 * 4.8448 / 2
    assert epsilon["mechanism_exact"] == pytest.approx(epsilon_of_mu(1 / std, 1e-5), rel=1e-3)
    assert epsilon["training"] == pytest.approx(epsilon_of_mu(3 / std, 1e-5), rel=1e-3)
    assert epsilon["training_test"]["low"] >= epsilon["gaussian_test"]["low"]
    text = audit(tmp_path, FAIR, *words, out="text").stdout
    assert "client, added or removed" in text
    assert "Over 9 releases it is at most " in text


@pytest.mark.parametrize(
    ("apart", "relation", "tested"),
    [(1.5, "add", False), (1.5, "replace", True), (0.9, "add", True), (2.1, "replace", False)],
)
@pytest.mark.parametrize("text", [FAIR, "svt:gamma=0.5,fraction=1"])
def test_versions_that_are_no_neighbours_do_not_test_a_claim(
    text: str, apart: float, relation: Relation, tested: bool
) -> None:
    """Of a client that is added, an update moves by the clip: 1, or 0.5 to each side."""
    if text != FAIR:
        apart /= 2
    expected = {"w": torch.tensor([[0.0, 0.1], [apart, 0.1]])}
    near = Neighbours("client", relation)
    found = filter_of(text).theory(expected, delta=1e-5, attributes=1, near=near, releases=1)
    assert found.neighbours == tested
    details = {} if tested else {APART: "no neighbours"}
    context = CellContext(
        question="guarantee", game="a", dataset="d", label="y", secret="a", defense=text,
        knowledge="adaptive", adversary="norm", seed=0,
    )  # fmt: skip
    shown = Estimate(9.0, 8.0, 10.0, 400)
    one = context.measurement(EPSILON, shown, details=details, theory={CLAIMED: 2.0})
    assert AuditedGuarantee({"mechanism": text}, {EPSILON: one}).refutes_claim == tested


def test_a_filter_s_own_delta_is_that_of_the_audit(tmp_path: Path) -> None:
    """Epsilon at a smaller delta says nothing of a claim at a larger one."""
    text = "local-dp:clip=1,sensitivity=4,epsilon=2,delta=0.01"
    assert json.loads(audit(tmp_path, text, "--json").stdout)["delta"] == 0.01
    larger = audit(tmp_path, text, "--delta", 0.02, "--json", out="larger")
    assert json.loads(larger.stdout)["delta"] == 0.02


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
