"""The games of Li et al., CCS 2024, section 3.2: a secret, and how a batch depends on it.

The challenger draws a secret a from the prior, then a private batch (x, y) ~ p(x, y | a). In
*attribute* and *property inference* it is B private records whose secret is a; the attribute is one
of the features, so the model is trained on it, the property is not. In *proportion inference* (the
paper's distributional inference) the secret is the range of the share of records with a property.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known, require_positive
from leakgauge.core.types import Dataset, Params, Schema, Task
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.games.blocks import MAX_BLOCKS, deal_blocks, members_of, one_block
from leakgauge.inference.games.mixing import Mix, bootstrap
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.words import BLOCKS, IID
from leakgauge.results.statistics import Ints


@dataclass(frozen=True, eq=False)
class BatchGame:
    """A game whose batches depend on a secret of their records.

    Attributes:
        pool: the private records.
        secret: the name of the records' secret.
        mix: how a batch depends on its secret.
        batch_size: B, the records of a batch.
        prior: the probability P(a) of each value ``[m]``.
        block: the block ``[len(pool)]`` of each record; all 0 if batches are drawn from all.
        draw: ``"blocks"``, or ``"iid"`` for records drawn from all, with replacement.
    """

    pool: Dataset
    secret: str
    mix: Mix
    batch_size: int
    prior: tuple[float, ...]
    block: Ints
    draw: str = BLOCKS

    name: ClassVar[str]

    @property
    def values(self) -> int:
        """m, number of values of the secret."""
        return self.mix.values

    @property
    def value_names(self) -> tuple[str, ...]:
        """The secret's values ``[m]`` in words; a schema may name more than the records have."""
        values = self.mix.record_values
        return self.mix.names(_names(self.pool.schema, self.secret, values)[:values])

    @property
    def notes(self) -> tuple[str, ...]:
        """Changes to the data that users should know; empty."""
        return ()

    @classmethod
    def deal(
        cls,
        pool: Dataset,
        secret: str,
        *,
        batch_size: int,
        mix: Mix,
        prior: tuple[float, ...] | None = None,
        max_blocks: int = MAX_BLOCKS,
        draw: str = BLOCKS,
        rng: np.random.Generator,
    ) -> "BatchGame":
        """Return a game on private records.

        Args:
            pool: the private records; their ``secrets[secret]`` are codes of ``mix``.
            secret: the name of the records' value.
            batch_size: B, records per batch.
            mix: how a batch depends on its secret.
            prior: P(a) ``[m]``; uniform if None.
            max_blocks: maximum number of blocks.
            draw: ``"blocks"`` for batches from disjoint blocks, or ``"iid"`` for independent draws
                from all records, as in Definition 3.1 of the paper.
            rng: generator of the deal.

        Raises:
            InputError: the secret does not fit the game, or a value has too few records.
        """
        require_positive(batch_size, "batch size")
        cls.check_schema(pool.schema, secret)
        codes = pool.secrets[secret].cpu().numpy()
        users = None if pool.users is None else pool.users.cpu().numpy()
        values = mix.record_values
        require(
            int(codes.max()) < values,
            f"secret {secret!r} has {int(codes.max()) + 1} values; this game is about {values}: "
            "make it one value against the rest, as games.one_against_rest does",
        )
        names = _names(pool.schema, secret, values)
        about = codes, users, values, batch_size
        if draw == IID:
            block = one_block(*about, names=names)
        else:
            block = deal_blocks(*about, max_blocks=max_blocks, names=names, rng=rng)
        uniform = tuple([1 / mix.values] * mix.values)
        return cls(pool, secret, mix, batch_size, prior or uniform, block, draw)

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """Refuse data that this game cannot use."""

    def draw_trials(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Return n trials: secrets drawn from the prior, and a batch for each."""
        return self._draw(rng.choice(self.values, size=n, p=self.prior), rng)

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Return the same trials with new batches for the same secrets."""
        return self._draw(trials.secret.cpu().numpy(), rng, trials.block.cpu().numpy())

    def known_to_defender(self, trials: Trials) -> Tensor | None:
        """Return the secrets ``[n]``, which a learned defense may use."""
        return trials.secret

    def shadow(
        self, task: Task, params: Params, data: Dataset, *, max_bytes: int, **seeds: Any
    ) -> Shadow:
        """Return the adversary's shadow, with the same dependence of batches on secrets.

        Args:
            task: the model and its loss.
            params: the parameters of a round.
            data: the public records.
            max_bytes: the largest size of the gradients in memory.
            **seeds: ``noise_seed``, ``held_out_seed`` and ``draw_seed`` of ``Shadow``.
        """
        about = self.secret, self.values, self.batch_size, max_bytes
        return Shadow(task, params, data, *about, mix=self.mix, **seeds)

    def _draw(self, secret: Ints, rng: np.random.Generator, block: Ints | None = None) -> Trials:
        count = int(self.block.max()) + 1
        block = np.arange(len(secret)) % count if block is None else block
        codes = self.pool.secrets[self.secret].cpu().numpy()
        members = members_of(codes, self.block, self.mix.record_values, count)
        taken = self.mix.counts(secret, self.batch_size, rng)
        if self.draw == IID:
            rows = bootstrap(members[0], taken, rng)
        else:
            rows = np.stack(
                [
                    np.concatenate(
                        [
                            rng.choice(members[b][value], size=k, replace=False)
                            for value, k in enumerate(counts)
                            if k > 0
                        ]
                    )
                    for counts, b in zip(taken, block, strict=True)
                ]
            )
        device = self.pool.y.device
        drawn = [torch.from_numpy(array).to(device) for array in (secret, rows, block)]
        units = self._units(drawn[1]) if self.draw == IID else None
        return Trials(drawn[0], drawn[1], drawn[2], self.pool, units=units)

    def _units(self, rows: Tensor) -> Tensor:
        """Return the user of each record of batches ``[n, B]``, or the record itself."""
        return rows if self.pool.users is None else self.pool.users[rows]


@dataclass(frozen=True, eq=False)
class AttributeInference(BatchGame):
    """The secret is one of the features (section 3.2, attribute inference)."""

    name: ClassVar[str] = "attribute"

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """Refuse a secret that is not among the features."""
        if schema is not None and secret not in {column.name for column in schema.columns}:
            raise InputError(
                f"attribute inference infers a feature, but {secret!r} is not among the encoded "
                "features; keep it when encoding, or ask for the property"
            )


@dataclass(frozen=True, eq=False)
class PropertyInference(BatchGame):
    """The secret is not among the features (section 3.2, property inference)."""

    name: ClassVar[str] = "property"

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """Refuse a secret that is among the features."""
        if schema is not None and secret in {column.name for column in schema.columns}:
            raise InputError(
                f"property inference infers what the model does not see, but {secret!r} is a "
                "feature; remove it when encoding, or ask for the attribute"
            )


@dataclass(frozen=True, eq=False)
class ProportionInference(BatchGame):
    """The secret is the range of the share of records with a property.

    Distributional inference in Li et al., section 3.2. The model does not see the property, as in
    property inference; ``Ratio`` says how the share is drawn. A secret with more than two values is
    one value against the rest: see ``leakgauge.inference.games.games``.
    """

    name: ClassVar[str] = "proportion"

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """Refuse a property that is among the features."""
        PropertyInference.check_schema(schema, secret)


BATCH_GAMES: dict[str, type[BatchGame]] = {
    game.name: game for game in (PropertyInference, AttributeInference, ProportionInference)
}
"""The games whose batches depend on a secret of their records, by name."""


def _names(schema: Schema | None, secret: str, values: int) -> tuple[str, ...]:
    return schema.secrets[secret] if schema else tuple(str(value) for value in range(values))


def one_against_rest(data: Dataset, secret: str, value: str | None = None) -> Dataset:
    """Return the records with a binary secret: all other values, then the chosen one.

    Li et al. do not state to which value the share refers, or how they treat secrets with more
    than two values (UTKFace's ethnicity, the sex in Health). The default is the second of two
    values, or the most frequent of more, against all others together.

    Args:
        data: the records.
        secret: the name of the secret.
        value: the value in words; None for the default.

    Raises:
        InputError: the secret does not have this value, or has only one.

    References:
        Li et al., CCS 2024, sections 3.2 and 4.1 (distributional inference).

    >>> x, codes = torch.zeros(5, 2), torch.tensor([0, 2, 1, 2, 2])
    >>> one_against_rest(Dataset(x, codes, {"s": codes}), "s").secrets["s"].tolist()
    [0, 1, 0, 1, 1]
    """
    codes = data.secrets[secret]
    names = data.schema.secrets[secret] if data.schema else ()
    chosen = code_of(codes, secret, names, value)
    schema = data.schema
    if schema is not None:
        others = [name for code, name in enumerate(names) if code != chosen]
        rest = others[0] if len(others) == 1 else f"not {names[chosen]}"
        schema = replace(schema, secrets={**schema.secrets, secret: (rest, names[chosen])})
    return replace(
        data, secrets={**data.secrets, secret: (codes == chosen).to(codes.dtype)}, schema=schema
    )


def code_of(codes: Tensor, secret: str, names: Sequence[str], value: str | None) -> int:
    """Return the code of the chosen value.

    Args:
        codes: the secret of each record ``[n]``.
        secret: its name, for messages.
        names: its values by code; empty for the codes themselves.
        value: one of them; None for the second of two or the most frequent of more.

    Raises:
        InputError: the secret does not have this value, or has only one.
    """
    counts = torch.bincount(codes.cpu())
    named = [*names] or [str(code) for code in range(len(counts))]
    require(
        int((counts > 0).sum()) > 1,
        f"all records have the same value of {secret!r}, so its share is known; choose another "
        "--secret",
    )
    if value is not None:
        require_known(value, named, f"--ratio-of is {value!r}, not a value of {secret!r}")
        return named.index(value)
    return 1 if len(counts) == 2 else int(counts.argmax())
