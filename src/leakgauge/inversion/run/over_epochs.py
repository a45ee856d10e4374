"""Runs an attempt over several epochs of one client that holds all the records."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inversion.epochs.assignment import (
    METHODS,
    arrange,
    match_epochs,
    matching_accuracy,
    true_records,
)
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.epochs.per_sample import per_sample_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.table import FELL_SHORT, LABEL_ACCURACY, WITHOUT
from leakgauge.inversion.observed import AttackOptions, Reconstruction, SearchProgress
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.drawing import deal_distinct
from leakgauge.inversion.run.measuring import SNAPSHOTS, scored
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.updates import attack_updates, check_updates, in_updates
from leakgauge.inversion.scoring import in_true_order
from leakgauge.inversion.words import DISTINCT, GRADIENTS, GREEDY, KNOWN, OPTIMAL, PER_SAMPLE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of
from leakgauge.training.sending import Sent

POOL = 2
"""Side of the square of pixels that is averaged before images are compared, as in the paper."""


@dataclass(frozen=True, eq=False)
class SingleEpoch:
    """What was sent in one epoch, and rebuilt from each of its updates alone.

    Attributes:
        seen: what the server saw.
        order: the true records of the updates, ``[U, B]``: for scoring alone.
        rough: records rebuilt from each update alone, by a short search, ``[U, B, ...]``.
        labels: labels of the rough records, ``[U, B]``.
        scores: scores of a search at full length, and of the labels.
        warnings: why an update may not stand for a gradient.
    """

    seen: Epoch
    order: Tensor
    rough: Tensor
    labels: Tensor
    scores: dict[str, Tensor]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OverEpochs:
    """An attempt over several epochs of one client that holds all the records.

    The client deals its records anew in each epoch; the server steps after each update. Each update
    is inverted alone first; then the rough records are matched between epochs, and the records are
    searched for by all of their updates.

    Attributes:
        scenario: private records, network and public records.
        attempt: method, defense and knowledge.
        lpips: network that scores images too.
        progress: called at each iteration.
        checkpoint: keeps the states of its searches.
    """

    scenario: Scenario
    attempt: Attempt
    lpips: Lpips | None
    progress: SearchProgress | None
    checkpoint: Checkpoint

    def rebuild(self) -> Rebuilt:
        """Return what all updates of all epochs together rebuild.

        The assignments by rough images are always scored, also without pooling or labels: they cost
        nothing.

        Raises:
            InputError: an update of a later epoch shows no labels; no search was run then.
        """
        self._check()
        plan, first = self._plan(), self.singles[0]
        joint = self._joint(plan)
        records = [true_records(one.rough, self.scenario.x, one.order) for one in self.singles]
        matched = {name: matching_accuracy(one, records) for name, one in self._by_images.items()}
        if self.attempt.rules.matching == GRADIENTS:
            matched[GRADIENTS] = self._matched_by_gradients(plan, joint.x.flatten(0, 1), records)
        return scored(
            self.scenario,
            joint,
            # The first epoch numbers the records: as for single epochs, they stay in their update.
            in_updates(self.scenario.x, self.attempt.client),
            first.labels,
            {
                LABEL_ACCURACY: first.scores[LABEL_ACCURACY],
                FELL_SHORT: first.scores[FELL_SHORT],
                **{f"matching_{name}": shares for name, shares in matched.items()},
            },
            tuple(dict.fromkeys(text for one in self.singles for text in one.warnings)),
            lpips=self.lpips,
            rounds={number: one.scores for number, one in enumerate(self.singles, start=1)},
        )

    @functools.cached_property
    def singles(self) -> list[SingleEpoch]:
        """What the client sends in each epoch, with what single updates give.

        An epoch has a round for each update: the server steps along its gradient before the next
        one is made, so that each update starts at other weights. The paper leaves open what else
        trains the model between them; here, nothing does.
        """
        params, found = self.scenario.params, []
        for number in range(self.attempt.spec.epochs):
            params, one = self._run_epoch(params, number)
            found.append(one)
        return found

    @property
    def _pool(self) -> int:
        return POOL if self.scenario.pixels is not None else 1

    @functools.cached_property
    def _by_images(self) -> dict[str, EpochPlan]:
        """The plans by rough images, also the paper's without pooling or labels."""
        rough, labels = [one.rough for one in self.singles], [one.labels for one in self.singles]
        blank, pool = [torch.zeros_like(one) for one in labels], self._pool
        plans = {name: match_epochs(rough, labels, pool=pool, method=name) for name in METHODS}
        for name, (pooled, labelled) in WITHOUT.items():
            plans[f"{GREEDY}_{name}"] = match_epochs(
                rough, labels if labelled else blank, pool=pool if pooled else 1, method=GREEDY
            )
        return plans

    @property
    def _shared(self) -> dict[str, Any]:
        """Arguments that every search over several epochs gets."""
        return {
            "record": tuple(self.scenario.x.shape[1:]),
            "low": self.scenario.low,
            "high": self.scenario.high,
            "seed": self.attempt.spec.seed,
            "progress": self.progress,
        }

    def _plan(self) -> EpochPlan:
        """Return the plan that the joint search follows."""
        matching = self.attempt.rules.matching
        if matching == KNOWN:  # granted: the first epoch numbers the records in their true order
            return EpochPlan(torch.stack([one.order for one in self.singles]))
        if matching != GRADIENTS:
            return self._by_images[matching]
        return refine_assignment(
            self.scenario.task,
            [one.seen for one in self.singles],
            self._by_images[OPTIMAL],
            self.attempt.settings,
            labels=self.singles[0].labels.flatten(),
            checkpoint=self.checkpoint,
            **self._shared,
        )

    def _joint(self, plan: EpochPlan) -> Reconstruction:
        """Return all records by the plan, ``x [1, n, ...]`` or ``[n, 1, ...]``."""
        rules, epochs = self.attempt.rules, [one.seen for one in self.singles]
        search = (self.scenario.task, epochs, plan, self.attempt.settings)
        given = {
            **self._shared,
            "weights": rules.weights(len(epochs)),
            "snapshots": SNAPSHOTS,
            "checkpoint": self.checkpoint.part("joint", after=digest_of({"plan": plan.members})),
        }
        labels = self.singles[0].labels.flatten()
        if rules.joint != PER_SAMPLE:
            return joint_reconstruct(*search, labels=labels, **given)
        own = [one.labels for one in self.singles]
        if rules.matching == GRADIENTS:  # The order within an update means nothing there.
            own = [plan.batches(labels, epoch=number) for number in range(len(epochs))]
        return per_sample_reconstruct(*search, labels=own, **given)

    def _matched_by_gradients(self, plan: EpochPlan, x: Tensor, records: list[Tensor]) -> Tensor:
        """Return the share of records that the plan of the joint search ``x`` assigns correctly.

        Args:
            plan: the plan of the joint search.
            x: its records ``[n, ...]``.
            records: the true record of each rough one, for each epoch.
        """
        rough, labels = [one.rough for one in self.singles], [one.labels for one in self.singles]
        arranged = arrange(plan, x, labels[0].flatten(), rough, labels, pool=self._pool)
        first = self.singles[0].order
        own = true_records(x.view(*first.shape, *x.shape[1:]), self.scenario.x, first)
        return matching_accuracy(arranged, [own, *records[1:]])

    def _run_epoch(self, params: Params, number: int) -> tuple[Params, SingleEpoch]:
        """Run one epoch from these weights; return those after it, and what it gives."""
        scenario, client = self.scenario, self.attempt.client
        order, x, y = self._dealt(number)
        models, rounds = [params], []
        for update, records in enumerate(zip(x[:, None], y[:, None], strict=True)):
            now = models[-1]
            rounds.append(self._run_round(now, *records, number=number, update=update))
            models.append(self._stepped(now, rounds[-1][0]))
        updates, rough, found = zip(*rounds, strict=True)
        labels = torch.cat([one.labels for one in rough])
        rows = in_true_order(torch.cat([one.x for one in found]), x)
        short = [
            one.fell_short(*true) for one, *true in zip(found, x[:, None], y[:, None], strict=True)
        ]
        return models[-1], SingleEpoch(
            Epoch(
                {name: torch.stack([one[name] for one in models[:-1]]) for name in params},
                {name: torch.cat([one.grads[name] for one in updates]) for name in params},
            ),
            order.view(-1, client.records),
            torch.cat([one.x for one in rough]),
            labels,
            {
                **scenario.scorer(self.lpips).scores(rows, scenario.x[order]),
                LABEL_ACCURACY: label_accuracy(labels, y),
                FELL_SHORT: torch.cat([one for one in short if one is not None]),
            },
            tuple(dict.fromkeys(text for one in updates for text in one.warnings())),
        )

    def _check(self) -> None:
        """Refuse an update that shows no labels, before hours of searches for the others."""
        params, scenario, spec = self.scenario.params, self.scenario, self.attempt.spec
        if spec.labels == KNOWN:
            return
        for number in range(spec.epochs):
            _, x, y = self._dealt(number)
            for records in zip(x[:, None], y[:, None], strict=True):
                try:
                    sent = check_updates(
                        scenario, self.attempt, params, *records, seed=spec.seed + number
                    )
                except InputError as error:
                    raise InputError(
                        f"epoch {number + 1}: {error}; a model that has learned its records gives "
                        "no gradient: attack more records (--images), or lower --server-lr"
                    ) from error
                params = self._stepped(params, sent)

    def _stepped(self, params: Params, sent: Sent) -> Params:
        """Return the weights after the server's step along the gradient of an update."""
        lr = float(self.attempt.spec.server_lr or 0.0)
        return {name: leaf - lr * sent.grads[name][0] for name, leaf in params.items()}

    def _run_round(
        self, params: Params, x: Tensor, y: Tensor, *, number: int, update: int
    ) -> tuple[Sent, Reconstruction, Reconstruction]:
        """Return what the client sends in one round, and what the rough and full search find."""
        attempt, after = self.attempt, digest_of(params)
        attack = functools.partial(attack_updates, self.scenario, attempt, params, x, y)

        def options(name: str) -> AttackOptions:
            seed, part = attempt.spec.seed + number, f"epoch-{number + 1}/{name}-{update + 1}"
            kept = self.checkpoint.part(part, after=after)
            return AttackOptions(seed, update, progress=self.progress, checkpoint=kept)

        sent, rough, _ = attack(options("rough"), method=attempt.rough)
        if attempt.rough == attempt.attack:
            return sent, rough, rough
        # An epoch by itself is scored at full length.
        return sent, rough, attack(options("update"))[1]

    def _dealt(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return an epoch's order, and its records and labels as the updates hold them."""
        order = self._order(number)
        x, y = (
            in_updates(one[order], self.attempt.client)
            for one in (self.scenario.x, self.scenario.y)
        )
        return order, x, y

    def _order(self, number: int) -> Tensor:
        """Return the positions of the records in an epoch's order; the first keeps their order."""
        scenario, spec = self.scenario, self.attempt.spec
        count, device = len(scenario.x), scenario.y.device
        if number == 0 or spec.same_batches:
            return torch.arange(count, device=device)
        rng = stream(spec.seed, "epoch", number)
        if scenario.drawn == DISTINCT:
            order = deal_distinct(scenario.y.cpu().numpy(), self.attempt.client.records, rng)
        else:
            order = rng.permutation(count)
        return torch.from_numpy(order).to(device)
