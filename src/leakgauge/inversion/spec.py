"""The settings of the question whether records can be rebuilt; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from leakgauge.core.knowledge import ADAPTIVE, STATIC
from leakgauge.core.strict import Real, Truth, Whole
from leakgauge.defenses.catalog import HELP, NOTATION
from leakgauge.inversion.client_spec import ClientSpec
from leakgauge.inversion.methods import HELP as METHODS_HELP
from leakgauge.inversion.methods import NOTATION as METHODS_NOTATION
from leakgauge.inversion.methods import is_method
from leakgauge.inversion.words import (
    DRAWS,
    INFERRED,
    JOINTS,
    LABELS,
    LARGEST_SIDE,
    LATER_EPOCHS,
    MATCHINGS,
    MLP,
    ROUGH_ITERATIONS,
    SCHEMES,
    SERVER_LR,
)
from leakgauge.models.named import NETS
from leakgauge.runs.setting import ATTACK, DATA, DEFENSE, RUN, TRAINING, setting
from leakgauge.runs.spec import NONE


@dataclass(frozen=True, kw_only=True)
class InversionSpec(ClientSpec):
    """Settings of attempts to rebuild records from what clients send.

    One spec stands for an attempt with each method, against each defense, with each knowledge of
    the defense. ``knowledge`` without a value runs a static attacker, and an adaptive one where
    an attack adapts to the defense.
    """

    aliases: ClassVar[Mapping[str, str]] = {"adversary": "method"}

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
        choices=DRAWS,
    )
    first: Whole = setting(
        0, "with draw first: the first record to attack", ATTACK, least=0, option=False
    )
    side: Whole = setting(  # type: ignore[misc]  # for the other questions it is a constant
        32, "height and width of images, in pixels", DATA, least=1, most=LARGEST_SIDE
    )
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
        f"by default {SERVER_LR:g}, and after local steps what averaging the weights gives: "
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
        choices=MATCHINGS,
    )
    joint: str | None = setting(
        None,
        "with --epochs: how to rebuild records from all epochs; per-sample (the paper's rule "
        "and the default of agic): each from the updates that are matched for it; all (ours "
        "and the default of others): all records together from all updates",
        ATTACK,
        choices=JOINTS,
    )
    gamma: Real | None = setting(
        None,
        "with --epochs: weight of the updates of each later epoch, relative to 1 for the "
        "first; by "
        f"default {LATER_EPOCHS:g} for --joint per-sample and 1 for --joint all",
        ATTACK,
        above=0,
    )
    rough_iterations: Whole | None = setting(
        None,
        "with --epochs: iterations of the search for the rough images that are matched; by "
        f"default {ROUGH_ITERATIONS}, or those of the search where it has fewer",
        ATTACK,
        least=1,
    )
    iterations: Whole | None = setting(None, "iterations of the search", ATTACK, least=1)
    restarts: Whole = setting(
        1, "restarts of the search; the one with the smallest loss counts", ATTACK, least=1
    )
    labels: str = setting(
        INFERRED,
        "known grants the labels to the attacker; inferred takes iDLG for single records and "
        "counts for batches; gradinversion (the paper's) takes no label to occur twice in an "
        "update",
        ATTACK,
        choices=LABELS,
    )
    net: str | None = setting(None, "the network", TRAINING, choices=(*NETS, MLP))
    classes: Whole | None = setting(
        None,
        "outputs of the network's head, where they are more than the classes of the data, such "
        "as 1000 for a sample of ImageNet",
        TRAINING,
        least=2,
    )
    init: str = setting("pytorch", "how to draw the initial weights", TRAINING, choices=SCHEMES)
    weights: str | None = setting(
        None,
        "trained weights: a file of safetensors or a state dict of torch, by its path or its "
        "name in weights/ of the data folder",
        TRAINING,
    )
    hidden: tuple[Whole, ...] = setting(
        (), "width of a hidden layer of the network for tables", TRAINING
    )
    update: str | None = setting(
        None, "in place of DATA: a client's update, written by Update.save; needs --task", DATA
    )
    lpips: str | None = setting(None, "weights of LPIPS (AlexNet), safetensors", RUN)
    redact: Truth = setting(False, "neither keep nor show any record, true or rebuilt", RUN)
    files: str = setting(
        "", "sha256 of the files that update, weights and lpips name", RUN, option=False
    )

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
