"""The metadata of a Hugging Face model card (``model-index``) with the figures of an audit."""

from collections.abc import Mapping
from typing import Any

import yaml

from leakgauge.core.checks import require
from leakgauge.evidence.headlines import Headline, headlines
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.runs.audit import AuditRun
from leakgauge.runs.question import Question

MODEL_INDEX_FILE = "model-index.yaml"
TASK = {"type": "other", "name": "privacy leakage through training (leakgauge)"}
"""The Hub has no task for privacy; its word for one that it does not list is ``other``."""


def model_index(
    audit: AuditRun, questions: Mapping[str, Question], model_name: str, *, source_url: str = ""
) -> str:
    """Return the ``model-index`` of a model card as YAML.

    Args:
        audit: a finished audit.
        questions: questions by name.
        model_name: name of the model.
        source_url: address of the report or card; empty for none. The format allows no source
            without an address.

    Raises:
        InputError: the name is empty, or a question's package does not say what leads.
    """
    require(bool(model_name.strip()), "the model's name is empty; a model-index needs one")
    described = audit.description
    name = str(described.data.get("name") or "not named")
    dataset = {
        "name": name,
        "type": name,
        "args": {"fingerprint": str(described.data.get("fingerprint", ""))},
    }
    metrics = [_metric(one) for one in headlines(audit, questions)]
    entry: dict[str, Any] = {"task": dict(TASK), "dataset": dataset, "metrics": metrics}
    if source_url:
        version = described.versions.get("leakgauge", "")
        entry["source"] = {"name": f"leakgauge {version} {described.command}", "url": source_url}
    index = {"model-index": [{"name": model_name, "results": [entry]}]}
    return yaml.safe_dump(index, sort_keys=False, allow_unicode=True)


def _metric(one: Headline) -> dict[str, Any]:
    figure = one.figure
    estimate = figure.estimate
    args = {
        "low": estimate.low,
        **({} if one.finding.open_end else {"high": estimate.high}),
        "confidence": estimate.confidence,
        "n": estimate.n,
        "without_leakage": figure.chance,
        "verdict": one.finding.verdict,
        "secret": figure.secret,
        "adversary": figure.adversary,
        "defense": figure.defense,
        "knowledge": figure.knowledge,
    }
    return {
        "type": figure.metric,
        "value": estimate.value,
        "name": _title(one),
        "args": {name: value for name, value in args.items() if value != ""},
        "verified": False,
    }


def _title(one: Headline) -> str:
    """Return a name such as ``leakgauge property audit: AUROC``."""
    under = "" if one.figure.defense == UNDEFENDED else f" under {one.figure.defense}"
    known = f", {one.figure.knowledge} adversary" if under else ""
    return f"leakgauge {one.topic.replace('.', ' of ')} audit: {one.metric.label}{under}{known}"
