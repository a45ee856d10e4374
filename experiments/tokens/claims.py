"""Check each claim of the privacy-token paper, on the paper's figures and on ours.

    leakgauge run experiments/tokens/lenet.yaml --size cpu --out tokens-lenet
    python experiments/tokens/claims.py tokens-lenet [further folders]

The paper's figures come from the YAML files in this folder. Ours are means over the seeds of each
network and batch size: the critic gap as the paper computes it (in-sample), that of held-out
batches, and the held-out bound. Each claim is checked on each curve separately, without pooling.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml
from scipy import stats

from leakgauge.results.measurements import read_measurements
from leakgauge.tokens.metrics import GAP, GAP_IN_SAMPLE, INFORMATION, PSNR, of_critic
from leakgauge.tokens.words import AUTOENCODER, INFONCE, TOKENS

Curve = Mapping[int, float]
"""Mean figure by sub-epoch."""

FILES = ("lenet", "alexnet", "cnn", "mlp")
PAPERS = "paper"
ZERO = 0.1
"""Largest share of the largest gap that counts as about zero."""

ALIKE = 0.5
"""Rank correlation above which two orders count as equal."""

KINDS = ((GAP_IN_SAMPLE, PAPERS), (GAP, INFONCE), (INFORMATION, INFONCE))
"""Our figures: the paper's own gap, a held-out gap, and the held-out bound."""


@dataclass(frozen=True)
class Course:
    """The curves of one network and batch size.

    Attributes:
        source: ``paper`` or ``ours``.
        net: name of the network.
        batch: records per batch.
        kind: kind of figure.
        by_token: curve of the figure by token.
        psnr: PSNR of the attack; empty without an attack.
    """

    source: str
    net: str
    batch: int
    kind: str
    by_token: Mapping[str, Curve]
    psnr: Curve

    @property
    def title(self) -> str:
        """Network, source and kind of figure, padded to columns."""
        return f"{self.net:12} {self.source:6} {self.kind:32}"


def papers() -> Iterator[Course]:
    """Yield the paper's curves of each network, from the YAML files in this folder."""
    for name in FILES:
        rows = yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text())["paper"]
        curves: dict[str, dict[int, float]] = defaultdict(dict)
        for row in rows:
            curves[row["metric"]][row["round"]] = row["value"]
        by_token = {token: curves[of_critic(GAP_IN_SAMPLE, token, PAPERS)] for token in TOKENS}
        net = rows[0]["where"]["net"]
        yield Course("paper", net, 20, f"{GAP_IN_SAMPLE}, {PAPERS}", by_token, curves[PSNR])


def ours(folders: Sequence[Path]) -> Iterator[Course]:
    """Yield our curves of each network and batch size, means over the seeds of finished cells."""
    values: dict[tuple[str, int], dict[str, dict[int, list[float]]]] = {}
    for folder in folders:
        for cell in sorted((folder / "cells").iterdir()):
            settings = yaml.safe_load((cell / "cell.yaml").read_text())["identity"]["settings"]
            own = values.setdefault((settings["net"], settings["batch_size"]), {})
            for one in read_measurements(cell):
                if isinstance(one.round, int):
                    steps = own.setdefault(one.metric, {})
                    steps.setdefault(one.round, []).append(one.estimate.value)
    for (net, batch), metrics in values.items():
        means = {name: _means(steps) for name, steps in metrics.items()}
        for figure, method in KINDS:
            by_token = {
                token: means[of_critic(figure, token, method)]
                for token in TOKENS
                if of_critic(figure, token, method) in means
            }
            if by_token:
                kind = f"{figure}, {method}"
                yield Course("ours", net, batch, kind, by_token, means.get(PSNR, {}))


def _means(steps: Mapping[int, Sequence[float]]) -> Curve:
    return {step: float(np.mean(values)) for step, values in sorted(steps.items())}


def rank(first: Curve, second: Curve) -> float | None:
    """Return Spearman's correlation over the common checkpoints, None for fewer than three."""
    steps = sorted(first.keys() & second.keys())
    one, other = ([curve[step] for step in steps] for curve in (first, second))
    if len(steps) < 3 or min(len(set(one)), len(set(other))) < 2:
        return None
    return float(stats.spearmanr(one, other).statistic)


def peak(curve: Curve) -> int:
    """Return the sub-epoch of the largest figure."""
    return max(curve, key=lambda step: (curve[step], -step))


def positive_but_at_first(course: Course) -> tuple[bool, str] | None:
    """Check that the gap is above 0, but about 0 before the training."""
    if any(0 not in curve or len(curve) < 2 for curve in course.by_token.values()):
        return None
    holds, said = [], []
    for token, curve in course.by_token.items():
        later = [value for step, value in curve.items() if step > 0]
        holds.append(min(later) > 0 and abs(curve[0]) <= ZERO * max(later))
        said.append(f"{token} {curve[0]:.3f} at 0, least later {min(later):.3f}")
    return all(holds), "; ".join(said)


def rise_then_fall(course: Course) -> tuple[bool, str] | None:
    """Check that the largest figure is neither at the first nor at the last checkpoint."""
    if any(len(curve) < 3 for curve in course.by_token.values()):
        return None
    peaks = {token: peak(curve) for token, curve in course.by_token.items()}
    inside = [
        min(course.by_token[token]) < at < max(course.by_token[token])
        for token, at in peaks.items()
    ]
    return all(inside), "; ".join(f"{token} peaks at {at}" for token, at in peaks.items())


def tokens_agree(course: Course) -> tuple[bool, str] | None:
    """Check that both tokens rank the checkpoints in the same order."""
    if len(course.by_token) < 2:
        return None
    found = rank(*course.by_token.values())
    return None if found is None else (found > ALIKE, f"Spearman {found:.2f}")


def tracks_attack(course: Course) -> tuple[bool, str] | None:
    """Check that a larger gap comes with better reconstructions."""
    found = {token: rank(curve, course.psnr) for token, curve in course.by_token.items()}
    known = {token: value for token, value in found.items() if value is not None}
    if not known:
        return None
    text = "; ".join(f"{token} {value:.2f}" for token, value in known.items())
    return min(known.values()) > ALIKE, f"Spearman with the PSNR: {text}"


def early_is_best(course: Course) -> tuple[bool, str] | None:
    """Check that the attack rebuilds best at the first checkpoint."""
    if len(course.psnr) < 2:
        return None
    best = peak(course.psnr)
    return best == min(course.psnr), f"PSNR is largest at {best}"


CLAIMS = {
    "gap above 0, but at the start": positive_but_at_first,
    "rise, then fall": rise_then_fall,
    "both tokens agree": tokens_agree,
    "the gap tracks the attack": tracks_attack,
    "early reconstructions are best": early_is_best,
}


def smaller_batch_earlier(courses: Sequence[Course]) -> Iterator[str]:
    """Yield a line for each network and figure with several batch sizes."""
    several: dict[tuple[str, str], dict[int, Curve]] = defaultdict(dict)
    for one in courses:
        if AUTOENCODER in one.by_token:
            several[one.net, one.kind][one.batch] = one.by_token[AUTOENCODER]
    for (net, kind), by_batch in several.items():
        if len(by_batch) < 2:
            continue
        peaks = {batch: peak(curve) for batch, curve in sorted(by_batch.items())}
        values = list(peaks.values())
        holds = values == sorted(values) and values[0] < values[-1]
        shown = ", ".join(f"{batch}: {at}" for batch, at in peaks.items())
        yield f"{net:12} {'ours':6} {kind:32} {_word(holds):14} peak by batch size {shown}"


def lines(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the results, claim by claim."""
    courses = [*papers(), *ours(folders)]
    for claim, check in CLAIMS.items():
        yield f"\n{claim}"
        for one in courses if check is not early_is_best else _once(courses):
            found = check(one)
            if found is not None:
                batch = "" if one.batch == 20 else f" (batches of {one.batch})"
                yield f"{one.title} {_word(found[0]):14} {found[1]}{batch}"
    yield "\nsmaller batch, earlier peak (the paper's text has no figures)"
    yield from smaller_batch_earlier([one for one in courses if one.source == "ours"])


def _once(courses: Sequence[Course]) -> list[Course]:
    """Return one course for each attack."""
    alone = {(one.source, one.net, one.batch): replace(one, kind=PSNR) for one in courses}
    return list(alone.values())


def _word(holds: bool) -> str:
    return "holds" if holds else "does not hold"


if __name__ == "__main__":
    given = [Path(one) for one in sys.argv[1:]]
    for folder in given:
        if not folder.is_dir():
            sys.exit(f"folder {str(folder)!r} does not exist; name the --out of finished runs")
    print("\n".join(lines(given)))
