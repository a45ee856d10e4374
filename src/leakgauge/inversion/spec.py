"""The settings of the question whether records can be rebuilt; imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

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
from leakgauge.runs.setting import ATTACK, DATA, DEFENSE, RUN, TRAINING, Setting
from leakgauge.runs.spec import NONE


@dataclass(frozen=True, kw_only=True)
class InversionSpec(ClientSpec):
    """Settings of attempts to rebuild records from what clients send.

    One spec stands for an attempt with each method, against each defense, with each knowledge of
    the defense. ``knowledge`` without a value runs a static attacker, and an adaptive one where
    an attack adapts to the defense.
    """

    aliases: ClassVar[Mapping[str, str]] = {"adversary": "method"}

    method: Annotated[
        tuple[str, ...],
        Setting(METHODS_HELP, cells=True, panel=ATTACK, notation=METHODS_NOTATION),
    ] = ()
    defense: Annotated[
        tuple[str, ...],
        Setting(
            f"what clients do before they send, {HELP}",
            cells=True,
            adds=True,
            panel=DEFENSE,
            notation=NOTATION,
        ),
    ] = (NONE,)
    knowledge: Annotated[
        tuple[str, ...],
        Setting(
            "whether the attacker knows the defense: static (no) or adaptive (yes)",
            choices=(STATIC, ADAPTIVE),
            cells=True,
            panel=ATTACK,
        ),
    ] = ()
    images: Annotated[
        Whole | None,
        Setting(
            "records to attack; with --update, the records behind it where its file does not say",
            least=1,
            panel=ATTACK,
        ),
    ] = None
    draw: Annotated[
        str | None,
        Setting(
            "which records to attack: distinct (at random, no label twice in an update; the "
            "default where the labels allow it), random, or first (in the order of the data)",
            choices=DRAWS,
            panel=ATTACK,
        ),
    ] = None
    first: Annotated[
        Whole,
        Setting("with draw first: the first record to attack", least=0, option=False, panel=ATTACK),
    ] = 0
    side: Annotated[  # type: ignore[misc]  # for the other questions it is a constant
        Whole,
        Setting("height and width of images, in pixels", least=1, most=LARGEST_SIDE, panel=DATA),
    ] = 32
    simulate: Annotated[
        Truth,
        Setting("simulate the local steps: slower, but right at any learning rate", panel=ATTACK),
    ] = False
    ladder: Annotated[
        Truth,
        Setting(
            "run the attack on clients of rising realism: one gradient in evaluation mode, "
            "training mode, local steps, momentum, Adam, local epochs, an unknown rate, and a sum "
            "of clients; labels are granted",
            panel=ATTACK,
        ),
    ] = False
    epochs: Annotated[
        Whole,
        Setting(
            "epochs in which one client that holds all the records sends updates",
            least=1,
            panel=TRAINING,
        ),
    ] = 1
    server_lr: Annotated[
        Real | None,
        Setting(
            "with --epochs: learning rate of the server's step along the gradient of each update; "
            f"by default {SERVER_LR:g}, and after local steps what averaging the weights gives: "
            "--local-lr times --local-steps",
            above=0,
            panel=TRAINING,
        ),
    ] = None
    same_batches: Annotated[
        Truth,
        Setting(
            "with --epochs: do not shuffle, so that an update has the same records in every epoch",
            panel=TRAINING,
        ),
    ] = False
    matching: Annotated[
        str | None,
        Setting(
            "with --epochs: how to match records between epochs; greedy (the default of agic) and "
            "optimal compare rough images, gradients (the default of others) also compares "
            "gradients, known grants the right matching to the attacker",
            choices=MATCHINGS,
            panel=ATTACK,
        ),
    ] = None
    joint: Annotated[
        str | None,
        Setting(
            "with --epochs: how to rebuild records from all epochs; per-sample (the paper's rule "
            "and the default of agic): each from the updates that are matched for it; all (ours "
            "and the default of others): all records together from all updates",
            choices=JOINTS,
            panel=ATTACK,
        ),
    ] = None
    gamma: Annotated[
        Real | None,
        Setting(
            "with --epochs: weight of the updates of each later epoch, relative to 1 for the "
            "first; by "
            f"default {LATER_EPOCHS:g} for --joint per-sample and 1 for --joint all",
            above=0,
            panel=ATTACK,
        ),
    ] = None
    rough_iterations: Annotated[
        Whole | None,
        Setting(
            "with --epochs: iterations of the search for the rough images that are matched; by "
            f"default {ROUGH_ITERATIONS}, or those of the search where it has fewer",
            least=1,
            panel=ATTACK,
        ),
    ] = None
    iterations: Annotated[
        Whole | None, Setting("iterations of the search", least=1, panel=ATTACK)
    ] = None
    restarts: Annotated[
        Whole,
        Setting(
            "restarts of the search; the one with the smallest loss counts", least=1, panel=ATTACK
        ),
    ] = 1
    labels: Annotated[
        str,
        Setting(
            "known grants the labels to the attacker; inferred takes iDLG for single records and "
            "counts for batches; gradinversion (the paper's) takes no label to occur twice in an "
            "update",
            choices=LABELS,
            panel=ATTACK,
        ),
    ] = INFERRED
    net: Annotated[str | None, Setting("the network", choices=(*NETS, MLP), panel=TRAINING)] = None
    classes: Annotated[
        Whole | None,
        Setting(
            "outputs of the network's head, where they are more than the classes of the data, such "
            "as 1000 for a sample of ImageNet",
            least=2,
            panel=TRAINING,
        ),
    ] = None
    init: Annotated[
        str, Setting("how to draw the initial weights", choices=SCHEMES, panel=TRAINING)
    ] = "pytorch"
    weights: Annotated[
        str | None,
        Setting(
            "trained weights: a file of safetensors or a state dict of torch, by its path or its "
            "name in weights/ of the data folder",
            panel=TRAINING,
        ),
    ] = None
    hidden: Annotated[
        tuple[Whole, ...],
        Setting("width of a hidden layer of the network for tables", panel=TRAINING),
    ] = ()
    update: Annotated[
        str | None,
        Setting(
            "in place of DATA: a client's update, written by Update.save; needs --task", panel=DATA
        ),
    ] = None
    lpips: Annotated[str | None, Setting("weights of LPIPS (AlexNet), safetensors", panel=RUN)] = (
        None
    )
    redact: Annotated[
        Truth, Setting("neither keep nor show any record, true or rebuilt", panel=RUN)
    ] = False
    files: Annotated[
        str,
        Setting("sha256 of the files that update, weights and lpips name", option=False, panel=RUN),
    ] = ""

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
