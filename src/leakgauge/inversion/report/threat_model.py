"""The knowledge of the attacker that rebuilds records, in one sentence."""

from collections.abc import Mapping
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.inversion.servers.catalog import HONEST, server_of
from leakgauge.inversion.words import KNOWN, OPTIMIZER, RATE
from leakgauge.results.measurements import Run

_STATISTICS = {
    KNOWN: "the statistics of the batches in BatchNorm layers",
    "inferred": "running statistics of BatchNorm before and after",
    "proxy": "statistics of public records for BatchNorm layers",
}


def threat_model(run: Run) -> str:
    """Return who attacks and what it knows; what it does not know follows from the rest.

    Args:
        run: settings and data of the run.
    """
    settings = run.settings
    sent = "the update" if settings.get("update") is not None else _sent(settings)
    knows = [
        sent,
        "the network and its weights",
        "the number of records behind it",
        _labels(settings),
        *_training(settings),
        *([_STATISTICS[one]] if (one := settings.get("statistics")) in _STATISTICS else []),
        "public records of the same kind",
    ]
    said = f"Threat model: {_server(settings)}, knows {'; '.join(knows)}."
    return f"{said} {_letter(settings)}"


def _letter(settings: Mapping[str, Any]) -> str:
    """Return the nearest threat model of the systematisation, and what it does not cover.

    The attacks here have public records (surrogate data), if only to scale their inputs.

    References:
        Carletti et al., SoK: Gradient Inversion Attacks in Federated Learning, USENIX Security
        2025, table of threat models.
    """
    if str(settings.get("server") or HONEST) != HONEST:
        letter, name = "G", "data-enhanced manipulator"
    elif settings.get("statistics") == KNOWN:
        letter, name = "E", "statistical-informed eavesdropper"
    else:
        letter, name = "D", "data-enhanced eavesdropper"
    beyond = ", and the labels" if settings.get("labels") == KNOWN else ""
    return f"In the letters of Carletti et al. (USENIX Security 2025): {letter}, {name}{beyond}."


def _server(settings: Mapping[str, Any]) -> str:
    text = str(settings.get("server") or HONEST)
    if text == HONEST:
        return "an honest server, which alters nothing"
    try:
        server = server_of(text)
    except InputError:  # a user's own, whose code is gone
        server = None
    does = "" if server is None else f": it {server.traits.does}"
    return f"an active server ({text}{does})"


def _sent(settings: Mapping[str, Any]) -> str:
    several = int(settings.get("local_steps") or 1) * int(settings.get("local_epochs") or 1) > 1
    of = "the change of weights" if several else "the gradient"
    clients = int(settings.get("clients") or 1)
    return f"{of} of {'each client' if clients == 1 else f'{clients} clients together'}"


def _labels(settings: Mapping[str, Any]) -> str:
    granted = settings.get("labels") == KNOWN
    return "the labels (granted)" if granted else "no labels, except what the update shows"


def _training(settings: Mapping[str, Any]) -> list[str]:
    """Return what is known of how a client trained, where it took several steps."""
    if int(settings.get("local_steps") or 1) * int(settings.get("local_epochs") or 1) == 1:
        return []
    unknown = settings.get("unknown") or ()
    names = {RATE: "rate", OPTIMIZER: "optimizer"}
    known = ["local steps", *(word for name, word in names.items() if name not in unknown)]
    return [f"the client's {', '.join(known)}"]
