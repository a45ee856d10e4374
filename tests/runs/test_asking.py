"""Words, options and settings become questions that are asked, refused or left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError, require
from leakgauge.data.source import Source, frame_source
from leakgauge.runs.asking import AuditRequest, all_allowed, asked_of, setting_of
from leakgauge.runs.question import Prepared, answering
from leakgauge.runs.setting import setting
from leakgauge.runs.spec import Spec
from support.tables import frame
from support.toy.question import Toy


@pytest.fixture(scope="module")
def source() -> Source:
    return frame_source(frame())


def asked(word: str, options: Mapping[str, Any], **more: Any) -> Any:
    ((_, spec),) = asked_of(AuditRequest((word,), options, **more), questions()).values()
    return spec


def test_a_single_text_stands_for_a_list_of_one() -> None:
    spec = asked("property", {"defense": "sign", "adversary": "logistic"})
    assert (spec.defense, spec.adversary) == (("none", "sign"), ("logistic",))


def test_a_question_need_not_use_the_roles_of_the_data() -> None:
    roles = {"label": "income", "secret": "sex"}
    assert asked("reconstruction", {}, roles=roles).label == "income"
    assert asked("guarantee", {}, roles=roles).attribute == "sex"
    with pytest.raises(InputError, match="--secret changes nothing for --ask reconstruction"):
        asked("reconstruction", roles)


def test_each_secret_is_asked_about_while_the_others_are_left_out() -> None:
    secrets = {"secret": ("sex", "age"), "drop": ("town",), "rounds": 3}
    several = asked_of(
        AuditRequest(("property", "guarantee", "reconstruction"), secrets), questions()
    )
    specs = {key: spec for key, (_, spec) in several.items()}
    assert list(specs) == ["inference", "inference-2", "guarantee", "guarantee-2", "reconstruction"]
    assert [(specs[key].secret, specs[key].drop) for key in ("inference", "inference-2")] == [
        ("sex", ("town", "age")),
        ("age", ("town", "sex")),
    ]
    assert specs["guarantee-2"].attribute == "age"
    assert specs["reconstruction"].drop == ("town",)
    one = answering("inference-2", questions())
    assert one is not None
    assert one.name == "inference-2"
    assert questions()["inference"].name == "inference"
    assert answering("inference-x", questions()) is None
    with pytest.raises(InputError, match="--secret names one twice: a, a"):
        asked_of(AuditRequest((), {"secret": ("a", "a")}), questions())


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(InputError, match="no setting 'round'; did you mean 'rounds'"):
        asked("property", {"round": 1})


def test_a_setting_is_named_by_its_question_or_by_a_word_of_it() -> None:
    for name in ("inference.trials", "property.trials"):
        owner, one = setting_of(name, questions(), "settings")
        assert (owner.name, one.name) == ("inference", "trials")
    with pytest.raises(InputError, match="settings: no question 'infrence'; did you mean 'infer"):
        setting_of("infrence.trials", questions(), "settings")
    with pytest.raises(InputError, match="has no setting 'trails'; did you mean 'trials'"):
        setting_of("inference.trails", questions(), "settings")


@pytest.mark.parametrize(
    ("asks", "options", "says"),
    [
        (("all", "propety"), {}, "--ask is 'propety'; did you mean 'property'?"),
        (("all",), {"adversary": ("forrest",)}, "'forrest' is not known; did you mean 'forest'?"),
        (("all",), {"rounds": 0}, "--rounds is 0; expected a whole number of 1 or more"),
    ],
)
def test_all_refuses_what_is_wrong_for_all_data(
    source: Source, asks: tuple[str, ...], options: Mapping[str, Any], says: str
) -> None:
    roles = {"label": "income", "secret": "sex"}
    with pytest.raises(InputError, match=says):
        all_allowed(AuditRequest(asks, {**roles, **options}), questions(), source)


@dataclass(frozen=True, kw_only=True)
class AloneSpec(Spec):
    ask: tuple[str, ...] = setting((), "what to ask", cells=True)


class Alone(Toy):
    name = "alone"
    asks: Mapping[str, str] = {"one": "alone", "two": "alone too"}
    Spec = AloneSpec

    def prepare(self, spec: Any, source: Any) -> Prepared:
        require(len(spec.ask) == 1, "ask for this in a run of its own")
        return Prepared(spec, source)


def test_all_leaves_out_only_the_words_that_the_data_do_not_allow(source: Source) -> None:
    chosen, ready, reasons = all_allowed(AuditRequest(("all",)), {"alone": Alone()}, source)
    assert chosen["alone"][1].ask == ("one",)
    assert ready["alone"].spec == chosen["alone"][1]
    assert reasons == {"two": "ask for this in a run of its own"}


def test_a_setting_of_one_value_says_how_to_choose_among_several() -> None:
    options = {"secret": ("sex", "region"), "label": "income"}
    with pytest.raises(
        InputError, match=r"^layers takes one secret, and 2 came: sex, region; choo"
    ):
        asked("layers", options)
    chosen = asked("layers", options, sets={("layers", "secret"): "region"})
    assert chosen.secret == "region"
