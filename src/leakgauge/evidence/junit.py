"""JUnit XML of a run: one test case for each question and defense, or for each cell of a grid."""

from xml.etree import ElementTree as Xml

from leakgauge.evidence.cases import Case, cases_of, unmatched
from leakgauge.evidence.gate import Gate, figure_in_words
from leakgauge.evidence.parts import RunParts

PROGRAM = "leakgauge"


def as_junit(run: RunParts, gate: Gate) -> str:
    """Return JUnit XML of a run.

    A failed rule or promise is a failure, a refused or unmeasured part an error, and a question
    that was not asked is skipped. Equal runs give equal text, without times.
    """
    suite = Xml.Element("testsuite", {"name": f"{PROGRAM} {run.command} {run.name}".strip()})
    for case in cases_of(run, gate):
        _add(suite, case)
    for part in run.parts:
        for text in part.missing:
            name = part.cell or (f"not completed: {text}" if part.measurements else part.key)
            one = _case(suite, part.question.name, name)
            _note(one, "error", "not completed", text)
    for rule, figure in unmatched(gate):
        one = _case(suite, figure.question or "gate", f"{rule}: {figure.why}")
        _note(one, "error", figure.outcome, f"{rule}: {figure.why}")
    for line in run.not_asked:
        word, _, why = line.partition(":")
        _note(_case(suite, "not asked", word.strip("` ")), "skipped", "not asked", why.strip())
    cases = suite.findall("testcase")
    kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {"tests": str(len(cases))}
    for name, kind in kinds.items():
        counts[name] = str(sum(case.find(kind) is not None for case in cases))
    suite.attrib.update(counts)
    whole = Xml.Element("testsuites", {"name": PROGRAM, **counts})
    whole.append(suite)
    Xml.indent(whole)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(whole, "unicode") + "\n"


def _add(suite: Xml.Element, case: Case) -> None:
    one = _case(suite, case.part.question.name, case.name)
    figures = {
        f"{figure.metric} ({figure.knowledge}, {figure.adversary or 'model'}, {figure.round})": (
            f"{words['value']} ({words['interval']}; n = {figure.estimate.n})"
        )
        for figure in case.figures
        for words in [figure_in_words(figure)]
    }
    if figures:
        properties = Xml.SubElement(one, "properties")
        for name, value in figures.items():
            Xml.SubElement(properties, "property", {"name": _clean(name), "value": value})
    for rule, failed in case.failed:
        _note(one, "failure", failed.outcome, f"{rule}: {failed.why}")
    for broken in case.broken:
        _note(one, "failure", "broken promise", broken.why)


def _case(suite: Xml.Element, owner: str, name: str) -> Xml.Element:
    given = {"classname": f"{PROGRAM}.{owner}", "name": _clean(name)}
    return Xml.SubElement(suite, "testcase", given)


def _note(case: Xml.Element, kind: str, type_: str, message: str) -> None:
    note = Xml.SubElement(case, kind, {"type": type_, "message": _clean(message)})
    note.text = _clean(message)


def _clean(text: str) -> str:
    """Return text without the control characters that XML does not allow."""
    return "".join(one for one in text if one in "\t\n" or one.isprintable())
