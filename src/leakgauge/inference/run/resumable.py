"""A stage as the runner plays it: killed at any moment, it goes on where it stopped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from leakgauge.gradients import params_of
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.run.footprint import footprint
from leakgauge.inference.run.jointly import weigh_rounds
from leakgauge.inference.run.judging import judge
from leakgauge.inference.run.readings import Reading
from leakgauge.inference.run.rounds import RoundJudgements, play_round
from leakgauge.inference.run.stage import Stage
from leakgauge.inference.run.training import trajectory
from leakgauge.results.measurements import ACCUMULATED, Measurement
from leakgauge.runs.stages import Kept, State


@dataclass(frozen=True, eq=False)
class ResumableStage:
    """A ``leakgauge.runs.stages.Stage``: its states are the parameters before each round.

    Attributes:
        stage: what is played.
        dataset: the data's name, for the measurements.
        label: the label's name, for the measurements.
        alone: whether it is played with one seed only; otherwise its name tells the seed.
    """

    stage: Stage
    dataset: str
    label: str
    alone: bool = True

    @property
    def name(self) -> str:
        """Game and defense, and the seed among several."""
        seed = "" if self.alone else f", seed {self.stage.settings.seed}"
        return f"{self.stage.name}{seed}"

    @property
    def steps(self) -> int:
        """The number of rounds."""
        return self.stage.settings.rounds

    @property
    def memory(self) -> int:
        """Bytes that a round needs, beside the process itself."""
        return footprint(self.stage)

    @property
    def first(self) -> State:
        """The parameters before the first round."""
        return params_of(self.stage.task.model)

    def states(self, kept: Sequence[State]) -> Iterator[State]:
        """Train on, and yield the parameters before each further round and after the last."""
        if not kept:
            return trajectory(self.stage)
        return trajectory(self.stage, after=len(kept) - 1, params=kept[-1])

    def step(self, number: int, state: State) -> Kept:
        """Attack one round."""
        return encoded(play_round(self.stage, number, state))

    def close(self, states: Sequence[State], progress: Callable[[int], None]) -> Kept | None:
        """Let the adversaries that see all rounds at once judge; None without such adversaries."""
        together = weigh_rounds(self.stage, states, progress=progress)
        return _encoded_together(together) if together else None

    def judge(
        self, steps: Sequence[Kept], closing: Kept | None, final: State
    ) -> Sequence[Measurement]:
        """Score every adversary and the trained model."""
        return judge(
            self.stage,
            [decoded(kept) for kept in steps],
            final,
            dataset=self.dataset,
            label=self.label,
            jointly=_decoded_together(closing) if closing else {},
        )


def _encoded_together(together: Mapping[str, Reading]) -> Kept:
    arrays: dict[str, NDArray[Any]] = {}
    for key, reading in together.items():
        assert reading.held_out is not None
        arrays |= {
            f"posterior/{key}": reading.log_posterior,
            f"held/{key}": reading.held_out.log_odds,
            f"held secret/{key}": reading.held_out.secret,
        }
    return arrays, {"keys": list(together)}


def _decoded_together(kept: Kept) -> dict[str, Reading]:
    arrays, about = kept
    return {
        key: Reading(
            ACCUMULATED,
            arrays[f"posterior/{key}"],
            HeldOut(arrays[f"held/{key}"], arrays[f"held secret/{key}"]),
        )
        for key in about["keys"]
    }


def encoded(played: RoundJudgements) -> Kept:
    """Return a played round as arrays and plain values."""
    arrays: dict[str, NDArray[Any]] = {
        f"posterior/{key}": array for key, array in played.log_posterior.items()
    }
    for key, held_out in played.held_out.items():
        arrays |= {f"held/{key}": held_out.log_odds, f"held secret/{key}": held_out.secret}
    about = {
        "details": dict(played.details),
        "seconds": dict(played.seconds),
        "held_out": list(played.held_out),
    }
    return arrays, about


def decoded(kept: Kept) -> RoundJudgements:
    """Return a played round from what ``encoded`` made of it."""
    arrays, about = kept
    return RoundJudgements(
        {key: arrays[f"posterior/{key}"] for key in about["details"]},
        about["details"],
        about["seconds"],
        {
            key: HeldOut(arrays[f"held/{key}"], arrays[f"held secret/{key}"])
            for key in about["held_out"]
        },
    )
