"""The settings of the question whether records can be rebuilt; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.defenses.catalog import HELP, NOTATION
from leakgauge.inversion import words
from leakgauge.inversion.methods import HELP as METHODS_HELP
from leakgauge.inversion.methods import NOTATION as METHODS_NOTATION
from leakgauge.inversion.methods import is_method
from leakgauge.inversion.servers.catalog import HELP as SERVERS_HELP
from leakgauge.inversion.servers.catalog import HONEST
from leakgauge.inversion.servers.catalog import NOTATION as SERVERS_NOTATION
from leakgauge.models.named import NETS
from leakgauge.runs.fields import (
    MOST_STEPS,
    WIDEST,
    hidden_widths,
    image_side,
    initial_weights,
    optimizer_field,
)
from leakgauge.runs.setting import ATTACK, DATA, DEFENSE, RUN, TRAINING, setting
from leakgauge.runs.spec import NONE, Spec
from leakgauge.training.catalog import SGD


@dataclass(frozen=True, kw_only=True)
class InversionSpec(Spec):
    """Settings of attempts to rebuild records from what clients send.

    One spec stands for an attempt with each method, against each defense, with each knowledge of
    the defense. ``knowledge`` without a value runs a static attacker, and an adaptive one where
    an attack adapts to the defense.
    """

    aliases: ClassVar[Mapping[str, str]] = {"adversary": "method"}

    batch_size: Whole = setting(1, "records in a client's training step", TRAINING, least=1)
    local_steps: Whole = setting(
        1, "a client's steps before it sends", TRAINING, least=1, most=MOST_STEPS
    )
    local_lr: Real = setting(1e-4, "learning rate of a client's local steps", TRAINING, above=0)
    local_optimizer: str = optimizer_field(SGD, "makes a client's local steps")
    local_epochs: Whole = setting(
        1,
        "passes of a client over the same records before it sends",
        TRAINING,
        least=1,
        most=MOST_STEPS,
    )
    reshuffle: Truth = setting(
        False,
        "with --local-epochs: shuffle the records in each later pass, unknown to the attacker",
        TRAINING,
    )
    local_rates: tuple[Real, ...] = setting(
        (),
        "learning rate of each local step, in place of --local-lr: a schedule",
        TRAINING,
        above=0,
    )
    train_mode: Truth = setting(
        False,
        "clients train in training mode: BatchNorm uses the statistics of each batch, and "
        "dropout draws",
        TRAINING,
    )
    clients: Whole = setting(
        1,
        "clients behind one sum, which is all that the server sees (secure aggregation); all "
        "their records are attacked",
        TRAINING,
        least=1,
    )
    unknown: tuple[str, ...] = setting(
        (),
        "what the attacker does not know of the local steps: the rate (it assumes "
        f"--assumed-lr) or the optimizer (it assumes {SGD})",
        ATTACK,
        choices=words.UNKNOWNS,
    )
    assumed_lr: Real | None = setting(
        None,
        "with --unknown rate or --ladder: the rate that the attacker assumes; by default "
        f"{words.ASSUMED_LR:g}, torch's own",
        ATTACK,
        above=0,
    )
    statistics: str | None = setting(
        None,
        "with --train-mode: how the attacker knows the statistics of the batches in BatchNorm "
        "layers, to match them: known (granted), inferred (from the running statistics that "
        "were sent), proxy (from public records); by default it does not",
        ATTACK,
        choices=words.STATISTICS,
    )

    server: str = setting(HONEST, SERVERS_HELP, ATTACK, notation=SERVERS_NOTATION)
    method: tuple[str, ...] = setting(
        (), METHODS_HELP, ATTACK, cells=True, notation=METHODS_NOTATION
    )
    defense: tuple[str, ...] = setting(
        (NONE,),
        f"what clients do before they send, {HELP}",
        DEFENSE,
        cells=True,
        adds=True,
        notation=NOTATION,
    )
    knowledge: tuple[str, ...] = setting(
        (),
        "whether the attacker knows the defense: static (no) or adaptive (yes)",
        ATTACK,
        choices=(STATIC, ADAPTIVE),
        cells=True,
    )
    images: Whole | None = setting(
        None,
        "records to attack; with --update, the records behind it where its file does not say",
        ATTACK,
        least=1,
    )
    draw: str | None = setting(
        None,
        "which records to attack: distinct (at random, no label twice in an update; the "
        "default where the labels allow it), random, or first (in the order of the data)",
        ATTACK,
        choices=words.DRAWS,
    )
    first: Whole = setting(
        0, "with draw first: the first record to attack", ATTACK, least=0, option=False
    )
    side: Whole = image_side()  # type: ignore[misc]  # for most questions it is a constant
    simulate: Truth = setting(
        False, "simulate the local steps: slower, but right at any learning rate", ATTACK
    )
    ladder: Truth = setting(
        False,
        "run the attack on clients of rising realism: one gradient in evaluation mode, "
        "training mode, local steps, momentum, Adam, local epochs, an unknown rate, and a sum "
        "of clients; labels are granted",
        ATTACK,
    )
    epochs: Whole = setting(
        1, "epochs in which one client that holds all the records sends updates", TRAINING, least=1
    )
    server_lr: Real | None = setting(
        None,
        "with --epochs: learning rate of the server's step along the gradient of each update; "
        f"by default {words.SERVER_LR:g}, and after local steps what averaging the weights gives: "
        "--local-lr times --local-steps",
        TRAINING,
        above=0,
    )
    same_batches: Truth = setting(
        False,
        "with --epochs: do not shuffle, so that an update has the same records in every epoch",
        TRAINING,
    )
    matching: str | None = setting(
        None,
        "with --epochs: how to match records between epochs; greedy (the default of agic) and "
        "optimal compare rough images, gradients (the default of others) also compares "
        "gradients, known grants the right matching to the attacker",
        ATTACK,
        choices=words.MATCHINGS,
    )
    joint: str | None = setting(
        None,
        "with --epochs: how to rebuild records from all epochs; per-sample (the paper's rule "
        "and the default of agic): each from the updates that are matched for it; all (ours "
        "and the default of others): all records together from all updates",
        ATTACK,
        choices=words.JOINTS,
    )
    gamma: Real | None = setting(
        None,
        "with --epochs: weight of the updates of each later epoch, relative to 1 for the first; by "
        f"default {words.LATER_EPOCHS:g} for --joint per-sample and 1 for --joint all",
        ATTACK,
        above=0,
    )
    rough_iterations: Whole | None = setting(
        None,
        "with --epochs: iterations of the search for the rough images that are matched; by "
        f"default {words.ROUGH_ITERATIONS}, or those of the search where it has fewer",
        ATTACK,
        least=1,
    )
    iterations: Whole | None = setting(None, "iterations of the search", ATTACK, least=1)
    restarts: Whole = setting(
        1,
        "restarts of the search; the one with the smallest loss counts",
        ATTACK,
        least=1,
        most=1000,
    )
    labels: str = setting(
        words.INFERRED,
        "known grants the labels to the attacker; inferred takes iDLG for single records and "
        "counts for batches; gradinversion (the paper's) takes no label to occur twice in an "
        "update",
        ATTACK,
        choices=words.LABELS,
    )
    net: str | None = setting(None, "the network", TRAINING, choices=(*NETS, words.MLP))
    classes: Whole | None = setting(
        None,
        "outputs of the network's head, where they are more than the classes of the data, such "
        "as 1000 for a sample of ImageNet",
        TRAINING,
        least=2,
        most=WIDEST,
    )
    init: str = initial_weights()
    weights: str | None = setting(
        None,
        "trained weights: a file of safetensors or a state dict of torch, by its path or its "
        "name in weights/ of the data folder",
        TRAINING,
    )
    hidden: tuple[Whole, ...] = hidden_widths(())
    update: str | None = setting(
        None, "in place of DATA: a client's update, written by Update.save; needs --task", DATA
    )
    lpips: str | None = setting(None, "weights of LPIPS (AlexNet), safetensors", RUN)
    redact: Truth = setting(False, "neither keep nor show any record, true or rebuilt", RUN)
    files: str = setting(
        "", "sha256 of the files that update, weights and lpips name", RUN, option=False
    )

    @property
    def records_per_update(self) -> int:
        """Records behind one update, or one sum of updates."""
        return self.batch_size * self.local_steps * self.clients

    @classmethod
    def knows_adversary(cls, adversary: str) -> bool:
        """Return whether ``adversary`` is a method, with or without settings.

        >>> InversionSpec.knows_adversary("agic:beta=2"), InversionSpec.knows_adversary("forest")
        (True, False)
        """
        return is_method(adversary)

    def unmeasured(self, knowledge: str, when: int | str) -> str:
        """Return why no figure exists for this knowledge and round; empty where one does.

        Args:
            knowledge: attacker's knowledge of the defense: static or adaptive.
            when: an epoch, or all of them together.
        """
        if knowledge == ADAPTIVE and set(self.defense) == {NONE}:
            return (
                "an adaptive attacker, but without a defense there is nothing to adapt to; write "
                "knowledge: static, or name a defense in 'where'"
            )
        if isinstance(when, int) and not (1 <= when <= self.epochs and self.epochs > 1):
            return f"epoch {when}; the attempts are over {self.epochs}"
        return ""
