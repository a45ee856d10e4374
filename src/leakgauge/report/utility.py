"""Words for the utility of the trained model, by its metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.wording import interval, number, percent
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.results.metrics import OF_CLASSES, UTILITY
from leakgauge.results.scores import ACCURACY, BALANCED_ACCURACY, MACRO_F1, R2


@dataclass(frozen=True)
class Words:
    """Words of a report about a metric of the model.

    Attributes:
        name: within a sentence.
        constant: the best answer without a model.
        says: the model's figure, as a sentence with ``{}`` for it.
        is_share: whether figures are in per cent.
    """

    name: str
    constant: str
    says: str
    is_share: bool = False

    def figure(self, value: float) -> str:
        """Return a figure as text."""
        return percent(value) if self.is_share else number(value)

    def loss(self, by: float) -> str:
        """Return the decrease of a figure as text; empty without one."""
        lost = round(100 * by, 1) if self.is_share else round(by, 3)
        if lost <= 0:
            return ""
        return f"{lost:.1f} percentage points" if self.is_share else f"{lost:.3f}"

    def ends(self, estimate: Estimate) -> str:
        """Return the two ends of an interval."""
        return f"{self.figure(estimate.low)} to {self.figure(estimate.high)}"


WORDS: Mapping[str, Words] = {
    ACCURACY: Words(
        "accuracy",
        "naming the most frequent class",
        "is right on {} of the test records",
        is_share=True,
    ),
    BALANCED_ACCURACY: Words(
        "balanced accuracy",
        "naming one class",
        "is right on {} of the test records, where each class counts alike",
        is_share=True,
    ),
    R2: Words(
        "R²",
        "naming the mean of the labels",
        "predicts the labels of the test records with an R² of {}",
    ),
    MACRO_F1: Words(
        "macro F1",
        "naming every label",
        "names the labels of the test records with a macro F1 of {}",
    ),
}


def words_of(one: Measurement) -> Words:
    """Return the words for the metric of a figure of the model."""
    return WORDS[one.metric]


def utilities(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the utility of the trained models: the last figure of each game and defense."""
    last = {(one.game, one.defense): one for one in measurements if one.metric in UTILITY}
    return list(last.values())


def about_utility(one: Measurement) -> str:
    """Return whether the model learned anything, in one sentence."""
    estimate, words = one.estimate, words_of(one)
    ends = f"{percent(estimate.confidence)} interval {words.ends(estimate)}"
    figure = f"{words.figure(estimate.value)} ({ends})"
    figures = (
        f"The model {words.says.format(figure)}; always {words.constant} gives "
        f"{words.figure(one.chance)}"
    )
    if estimate.low > one.chance:
        return f"{figures}."
    return f"{figures}, so this run does not show that the model learned more than that."


def about_ranking(measurements: Sequence[Measurement], one: Measurement) -> str:
    """Return how well the model whose figure ``one`` is ranks the test records; empty for none."""
    found = [
        each.estimate
        for each in measurements
        if each.metric in OF_CLASSES and (each.game, each.defense) == (one.game, one.defense)
    ]
    if not found:
        return ""
    return f" The AUROC of its outputs is {number(found[-1].value)} ({interval(found[-1])})."


def useless_models(measured: Sequence[Measurement]) -> list[str]:
    """Return a warning for each model that is no better than the best constant answer."""
    return [
        f"the model trained for {one.game!r}"
        + ("" if one.defense == UNDEFENDED else f" under {one.defense}")
        + f" {_said(one)}, and always {words_of(one).constant} gives "
        f"{words_of(one).figure(one.chance)}: a model that learned nothing may leak otherwise than "
        "one that did; use more --rounds, another --lr or another --label"
        for one in measured
        if one.estimate.low <= one.chance
    ]


def utility_line(one: Measurement) -> str:
    """Return the paragraph of the terminal."""
    words = words_of(one)
    under = "" if one.defense == UNDEFENDED else f" under '{one.defense}'"
    return (
        f"The model trained for '{one.game}'{under} {_said(one)} "
        f"(always {words.constant}: {words.figure(one.chance)})."
    )


def _said(one: Measurement) -> str:
    words = words_of(one)
    return words.says.format(words.figure(one.estimate.value))
