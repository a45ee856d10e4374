"""The parts of an audit card. The JSON Schema in this folder is made of these classes."""

import json
import re
from typing import Any, Literal

import pydantic

from leakgauge.evidence.context import Context

SCHEMA_VERSION: Literal["1.0"] = "1.0"
SCHEMA_ID = f"urn:leakgauge:audit-card:{SCHEMA_VERSION}"
SCHEMA_FILE = "audit-card.schema.json"

Status = Literal[
    "executed", "executed in part", "refused", "not finished", "not asked", "out of scope"
]


class CardPart(pydantic.BaseModel):
    """A part of a card: frozen, without unknown keys or infinite numbers."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CardFigure(CardPart):
    """A figure with its interval."""

    value: float
    low: float
    high: float | None = pydantic.Field(description="null: the interval has no upper end")
    confidence: float = pydantic.Field(gt=0, lt=1)
    n: int = pydantic.Field(ge=1, description="trials, records or seeds behind the figure")
    counts: str = pydantic.Field(
        default="", description="what n counts, where the metric does not say it"
    )


class CardThreat(CardPart):
    """The adversary of a question."""

    goal: str
    knows: list[str]
    does: list[str]
    lacks: list[str] = pydantic.Field(description="what it does not know")
    nist: list[str] = pydantic.Field(description="NIST AI 100-2, as commonly mapped")
    edpb: list[str] = pydantic.Field(description="EDPB Opinion 28/2024, as commonly mapped")


class CardResult(CardPart):
    """The figure of one test."""

    ask: str
    secret: str
    defense: str
    knowledge: str = pydantic.Field(description="what the adversary knows of the defense")
    adversary: str
    metric: str
    title: str = pydantic.Field(description="of the metric, with its unit")
    figure: CardFigure
    chance: float = pydantic.Field(description="the figure where nothing leaks")
    verdict: str
    level: str
    leads: bool = pydantic.Field(description="whether the answer stands on this test")
    smallest_detectable: float | None = pydantic.Field(
        description="smallest true figure that the test detects with 80 % power"
    )
    no_smallest_detectable: str = pydantic.Field(default="", description="why there is none")


class CardBaseline(CardPart):
    """What is known without the attack."""

    ask: str
    name: str
    title: str
    value: float
    figure: CardFigure | None = pydantic.Field(
        description="null: no interval, the value is computed"
    )


class CardWorst(CardPart):
    """The user or record with the largest figure."""

    unit: Literal["user", "record"]
    label: str = pydantic.Field(description="as the report names it, or withheld")
    title: str
    value: float
    test: str
    figure: CardFigure | None = pydantic.Field(description="null: one record has no interval")


class CardEpsilon(CardPart):
    """An epsilon that a mechanism claims, beside what was measured."""

    defense: str
    event: str = pydantic.Field(description="what happens once for this epsilon")
    neighbours: str = pydantic.Field(description="the neighbouring relation")
    claimed: float | None = pydantic.Field(description="null: infinite, or not computed")
    delta: float
    note: str
    measured: CardFigure | None
    outcome: str


class Effect(CardPart):
    """A defense against an adversary that does not know it, and one that does."""

    ask: str
    defense: str
    title: str
    static: CardFigure | None
    adaptive: CardFigure | None


class DataOf(CardPart):
    """The data of one question, in numbers; never a record."""

    records: int | None
    columns: int | None
    users: int | None
    secret_values: dict[str, int] = pydantic.Field(description="records of each value")
    parts: dict[str, int] = pydantic.Field(description="sizes of the parts of the split")


class CardAnswered(CardPart):
    """One answered question."""

    key: str
    title: str
    data: DataOf
    settings: dict[str, Any]
    threat: CardThreat
    results: list[CardResult]
    baselines: list[CardBaseline]
    worst: list[CardWorst]
    no_worst: str
    epsilons: list[CardEpsilon]
    defenses: list[Effect]
    limits: list[str]
    notes: list[str]
    warnings: list[str]
    missing: list[str]


class Covered(CardPart):
    """Whether a question was asked, and if not, why."""

    ask: str
    about: str
    status: Status
    reason: str


class ControlFigure(CardPart):
    """The figure of a control."""

    ask: str
    adversary: str
    title: str
    figure: CardFigure
    chance: float
    passed: bool


class ControlOf(CardPart):
    """A placebo or a planted leak."""

    key: str
    kind: Literal["placebo", "planted"]
    outcome: str
    passed: bool | None
    changed: str
    reason: str
    figures: list[ControlFigure]


class CardRule(CardPart):
    """One rule of the gate."""

    rule: str
    outcome: str
    figures: list[Any]


class Decision(CardPart):
    """What the gate of the run decided."""

    decision: Literal["pass", "fail", "undecided", "no rule was given"]
    rules: list[CardRule]
    two_runs: Literal["pass", "fail", "undecided"] | None = pydantic.Field(
        default=None,
        description="what rules on this run and a reference decided, as compared.json says; the "
        "card holds no reference and cannot check it. null: there were none",
    )


class CardRecordTest(CardPart):
    """One attack's test of single records."""

    ask: str
    secret: str
    adversary: str
    knowledge: str
    versus: str = pydantic.Field(description="what the records are compared with")
    attacked: int
    named: int = pydantic.Field(description="records named above chance, after correction")
    alone: int = pydantic.Field(description="records that only this test names")


class CardRecord(CardPart):
    """A record of the data among the most exposed ones."""

    row: str = pydantic.Field(description="row in the data, counted from 0, or withheld")
    adjusted_p: float = pydantic.Field(description="corrected for all records and tests")
    named_by: list[str]


class CardExposure(CardPart):
    """Exposure by record under one defense."""

    defense: str
    says: str
    numbering: str = pydantic.Field(description="how rows are counted")
    tests: list[CardRecordTest]
    most: list[CardRecord] = pydantic.Field(description="named records, the most exposed first")


class CardData(CardPart):
    """Which data; never a record."""

    name: str
    fingerprint: str


class Unit(CardPart):
    """The unit of privacy of the splits and figures."""

    unit: Literal["user", "record"]
    why: str


class CardPage(CardPart):
    """The Markdown page that was written with the card."""

    name: str
    sha256: str


class Card(CardPart):
    """An audit card of leakgauge: what was tested, on what, with which outcome, and what not."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    seal: str = pydantic.Field(description="SHA-256 of this file with an empty seal")
    versions: dict[str, str]
    command: str
    context: Context = pydantic.Field(description="declared by the user, never inferred")
    data: CardData
    unit_of_privacy: Unit
    coverage: list[Covered]
    questions: list[CardAnswered]
    exposure: list[CardExposure] = pydantic.Field(
        description="by record; empty: no question tested single records"
    )
    controls: list[ControlOf] = pydantic.Field(description="empty: none were run")
    limits: list[str]
    decision: Decision
    files: dict[str, str] = pydantic.Field(description="SHA-256 of each file of the run")
    page: CardPage


def card_schema() -> dict[str, Any]:
    """Return the JSON Schema of a card; its definitions have the names of the classes without Card.

    ``verify`` reads cards that other machines wrote, and the schema is published, so a card has
    separate models: the dataclasses of ``runs/assessment.py`` hold whole measurements.
    """
    schema = json.dumps(Card.model_json_schema())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **json.loads(re.sub(r'(?<=["/])Card(?=[A-Z]\w*")', "", schema)),
    }
