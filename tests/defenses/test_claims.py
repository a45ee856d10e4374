"""What defenses claim by their parameters, and the doubts that need no run."""

import pytest

from leakgauge.defenses.catalog import DEFENSES, EXAMPLES
from leakgauge.defenses.claims import Claim, sensitivity_for, statement_of
from leakgauge.defenses.doubts import doubts
from leakgauge.defenses.local_dp import LocalDP
from leakgauge.privacy.accounting import delta_gaussian
from leakgauge.privacy.promises import Neighbours

FLIP = "local-dp:clip=1,sensitivity=0.0001,epsilon=10,delta=1e-05"
"""The filter of FLIP, issue 833."""

EVERY = {text.partition(":")[0]: text for text in ["none", *EXAMPLES.split(", ")]}
PRIVATE = {"dpsgd", "local-dp", "svt"}


def test_every_defense_of_the_catalog_has_an_example() -> None:
    assert set(EVERY) == set(DEFENSES)


@pytest.mark.parametrize("word", DEFENSES)
def test_every_defense_is_stated_as_a_mechanism_or_says_why_not(word: str) -> None:
    stated = statement_of(EVERY[word], batch_size=16)
    assert stated.word == word
    assert stated.is_private == (word in PRIVATE)
    assert stated.is_private or stated.why.startswith("it ")


def test_a_defense_of_other_layers_or_without_noise_is_no_mechanism() -> None:
    assert not statement_of("dpsgd:clip=2,noise=0", batch_size=16).is_private
    assert not statement_of("noise:std=1,layers=first", batch_size=16).is_private


def test_the_filter_of_flip_is_flagged_with_its_exact_figures() -> None:
    (line,) = doubts([FLIP])
    release = statement_of(FLIP, batch_size=1).mechanism
    assert release is not None
    assert release.noise_std == pytest.approx(4.845e-05, rel=1e-4)
    for figure in ("claims epsilon 10", "the same formula gives 100,000",
                   "213 million (client added)", "852 million (client replaced)",
                   "write sensitivity=2.07"):  # fmt: skip
        assert figure in line
    exact = release.follows(Neighbours("client", "add"), 1e-5).epsilon
    assert exact == pytest.approx((1 / release.noise_std) ** 2 / 2, rel=1e-3)


def test_the_advised_sensitivity_keeps_the_claim_and_a_smaller_one_does_not() -> None:
    claim = Claim(10.0, 1e-5)
    for near in (Neighbours("client", "add"), Neighbours("client", "replace")):
        for rounds in (1, 9):
            write = sensitivity_for(claim, 1.5, near, rounds=rounds)
            moved = (1.5 if near.relation == "add" else 3.0) * rounds**0.5
            deltas = [
                delta_gaussian(10.0, moved / LocalDP(1.5, one, 10.0, 1e-5).noise_std)
                for one in (write, 0.99 * write)
            ]
            assert deltas[0] <= 1e-5 < deltas[1]


def test_stock_svt_is_flagged_and_a_small_one_is_not() -> None:
    (line,) = doubts(["svt"])
    assert "10,000 per million parameters" in line
    assert doubts(["svt:fraction=1e-06,epsilon=0.1,noise=0.1"]) == ()


def test_the_parameters_of_flip_1145_give_its_epsilon() -> None:
    release = statement_of("svt", batch_size=1).sparse(7_033_300)
    follows = release.follows(Neighbours(), 0.0)
    assert round(release.counted) == 70_333
    assert (round(follows.least), round(follows.epsilon)) == (70_333, 70_334)


@pytest.mark.parametrize("text", ["percentile-privacy", "dpsgd:clip=1,noise=0"])
def test_what_is_called_private_and_adds_no_noise_is_flagged(text: str) -> None:
    (line,) = doubts([text, text])
    assert line.startswith(f"`{text}` gives no differential privacy")
    assert line.endswith("adds no noise")


def test_a_delta_above_one_over_the_records_is_flagged() -> None:
    text = "local-dp:clip=1,sensitivity=2,epsilon=1,delta=0.001"
    assert doubts([text], records=1000) == ()
    (line,) = doubts([text], records=1001)
    assert "above 1/1001" in line


def test_an_epsilon_above_fifty_is_flagged() -> None:
    assert doubts(["local-dp:clip=1,sensitivity=1,epsilon=50,delta=1e-05"]) == ()
    (line,) = doubts(["local-dp:clip=1,sensitivity=1,epsilon=51,delta=1e-05"])
    assert "claims epsilon 51, which protects nothing" in line
    (line,) = doubts(["dpsgd:clip=2,noise=0.1"], batch_size=1)
    assert "promises epsilon 284" in line
    assert doubts(["dpsgd:clip=2,noise=0.1"]) == ()  # its noise depends on the batch


def test_other_defenses_claim_nothing() -> None:
    texts = [EVERY[word] for word in set(DEFENSES) - PRIVATE - {"percentile-privacy"}]
    assert doubts([*texts, "my_module:build"], batch_size=16, records=10) == ()
