"""The sentence on what the attacker knows: each setting changes the words that it should."""

import pytest

from leakgauge.inversion.report.threat_model import threat_model
from leakgauge.results.measurements import Run

PLAIN = {"labels": "inferred", "local_steps": 1, "local_epochs": 1, "clients": 1, "unknown": []}


def said(**settings: object) -> str:
    return threat_model(Run("", {**PLAIN, **settings}, {}, (), {}))


def test_one_gradient_with_inferred_labels() -> None:
    assert said() == (
        "Threat model: an honest server, which alters nothing, knows the gradient of each client; "
        "the network and its weights; the number of records behind it; no labels, except what the "
        "update shows; public records of the same kind. In the letters of Carletti et al. (USENIX "
        "Security 2025): D, data-enhanced eavesdropper."
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels": "known"}, "the labels (granted)"),
        ({"local_steps": 4}, "the change of weights of each client"),
        ({"local_steps": 4}, "the client's local steps, rate, optimizer"),
        ({"local_epochs": 2, "unknown": ["rate"]}, "the client's local steps, optimizer;"),
        ({"clients": 3}, "the gradient of 3 clients together"),
        ({"statistics": "known"}, "the statistics of the batches in BatchNorm layers"),
        ({"statistics": "proxy"}, "statistics of public records for BatchNorm layers"),
        ({"update": "sent.safetensors"}, "knows the update;"),
        ({"labels": "known"}, "D, data-enhanced eavesdropper, and the labels."),
        ({"statistics": "known"}, "E, statistical-informed eavesdropper."),
        ({"server": "robbing:bins=9"}, "an active server (robbing:bins=9: it puts a linear layer"),
        ({"server": "fishing"}, "G, data-enhanced manipulator."),
        ({"server": "gone:Mine"}, "an active server (gone:Mine), knows"),
    ],
)
def test_each_setting_changes_its_words(settings: dict[str, object], words: str) -> None:
    assert words in said(**settings)
    assert words not in said()
