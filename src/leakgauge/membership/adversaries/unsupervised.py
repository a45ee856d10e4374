"""Attacks without known members: two clusters of records (Nasr et al., section II-D)."""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from sklearn.cluster import KMeans, SpectralClustering
from torch import Tensor, nn

from leakgauge.core.rng import derive, torch_stream
from leakgauge.core.threads import one_thread
from leakgauge.membership.adversaries.adversary import Floats, MembershipKnowledge, Needs
from leakgauge.membership.adversaries.inputs import Components, Inputs, Reader, Scale
from leakgauge.membership.adversaries.network import AttackNetwork, set_paper_weights
from leakgauge.membership.adversaries.supervised import BATCH, Training
from leakgauge.membership.adversaries.thresholds import best_cut
from leakgauge.membership.observation import Observed
from leakgauge.models.initialisation import initialise

DECODER = 64
"""Units of the decoder's hidden layer (Table XIV)."""

FEWEST = 10
"""Smallest number of neighbours of a record."""


@dataclass(frozen=True)
class Spectral:
    """Spectral clustering of an encoder's outputs.

    An encoder maps the observation of a record to one number; a decoder reconstructs loss,
    correctness, confidence, uncertainty and gradient norm from it. The numbers of all targets are
    split into two clusters; the one with larger gradients contains the non-members.

    Table XIV's decoder has four outputs and section II-D names five targets: there are five. It
    prints a ReLU on both layers of the decoder; the last one has none here. Eq. 5 lacks the minus
    sign of an entropy. The paper does not name the affinity: it is that of nearest neighbours,
    since a radial one gives other clusters from one width to the next. Few neighbours give
    unconnected groups instead of two clusters; the default was chosen on location30 (1,000 targets,
    4 seeds: success .78 to .79 with 1 or 2 %, .79 to .86 with 8 %).

    Attributes:
        layers: number of last layers with gradients; 0 for all.
        epochs: training epochs of encoder and decoder; 0 for the default.
        neighbours: neighbours in the affinity as a share of all records; at least 10.
        nasr19: the paper's settings: 1,000 kernels, 100 epochs, rate 0.0001, first weights N(0,
            0.01); loss, norm and gradients as they are, neither on a log scale nor standardised.
    """

    layers: int = 1
    epochs: int = 0
    neighbours: float = 0.08
    nasr19: bool = False
    name: ClassVar[str] = "spectral"

    @property
    def training(self) -> Training:
        """The training settings of encoder and decoder."""
        base = Training.nasr19() if self.nasr19 else Training()
        return replace(base, epochs=self.epochs or base.epochs)

    @property
    def inputs(self) -> Inputs:
        """The inputs of the encoder."""
        return Inputs(
            outputs=True, label=True, loss=True, layers=self.layers or -1, plain=self.nasr19
        )

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return self.inputs.needs

    def fit(self, known: MembershipKnowledge, *, seed: int) -> "Clusters":
        """Return an encoder trained on the known records, without their membership."""
        records = known.fitting.records
        reader = Reader(self.inputs, records)
        rebuilt = features(records, plain=self.nasr19)
        encoder = train_encoder(reader(records), rebuilt, training=self.training, seed=seed)
        return Clusters(reader, encoder, self.neighbours, derive(seed, "clusters") % 2**32)


@dataclass(frozen=True, eq=False)
class Clusters:
    """A trained encoder; it clusters all given records together."""

    reader: Reader
    encoder: nn.Module
    neighbours: float
    seed: int

    def log_odds(self, records: Observed) -> Floats:
        """Return the distance of each record's code towards the members' cluster ``[n]``."""
        codes = self.codes(records)
        apart = SpectralClustering(
            2,
            affinity="nearest_neighbors",
            n_neighbors=min(max(FEWEST, round(self.neighbours * len(codes))), len(codes)),
            random_state=self.seed,
            assign_labels="cluster_qr",
        )
        with warnings.catch_warnings():  # Unconnected groups are clusters.
            warnings.filterwarnings("ignore", message="Graph is not fully connected")
            first = apart.fit_predict(codes[:, None]) == 0
        norms = records.log_norm.mean(1).numpy()
        member = first if norms[first].mean() < norms[~first].mean() else ~first
        side = 1.0 if codes[member].mean() > codes[~member].mean() else -1.0
        cut = best_cut(side * codes, member)
        return (side * codes - cut) / (float(codes.std()) or 1.0)

    def codes(self, records: Observed) -> Floats:
        """Return the encoder's output for each record ``[n]`` (the paper's Figure 5)."""
        self.encoder.eval()
        with torch.no_grad():
            return np.asarray(self.encoder(self.reader(records)).double().numpy(), np.float64)


@dataclass(frozen=True)
class NormClusters:
    """k-means on the logarithm of the gradient's norm; the smaller gradients are members'.

    Attributes:
        layers: number of last layers with gradients; 0 for all.
    """

    layers: int = 1
    name: ClassVar[str] = "kmeans"

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        return Needs(layers=self.layers or -1)

    def fit(self, known: MembershipKnowledge, *, seed: int) -> "NormClusters":
        """Return the attack itself: only the targets are clustered."""
        return self

    def log_odds(self, records: Observed) -> Floats:
        """Return the distance of each gradient below the middle of two clusters ``[n]``."""
        norms = records.log_norm.mean(1).numpy()
        centres = KMeans(2, n_init=10, random_state=0).fit(norms[:, None]).cluster_centers_
        return np.asarray(centres.mean() - norms, dtype=np.float64)


def features(records: Observed, *, plain: bool = False) -> Tensor:
    """Return the features that a decoder reconstructs ``[n, k]``, five for each snapshot.

    They are standardised, with loss and gradient norm on a log scale; ``plain`` leaves all of them
    as they are. Without classes, loss and norm are the only features.
    """
    parts = [records.log_loss, records.log_norm]
    parts = [leaf.exp() for leaf in parts] if plain else parts
    if records.classes:
        truth = records.labels[:, None]
        outputs = records.outputs.clamp(min=1e-300)
        entropy = -(outputs * outputs.log()).sum(2) / np.log(records.classes)
        confidence = records.outputs.gather(2, truth[:, None].expand(-1, records.snapshots, 1))
        correct = (records.outputs.argmax(2) == truth).double()
        parts += [correct, confidence[..., 0], entropy]
    seen = torch.cat(parts, dim=1)
    return seen.float() if plain else Scale.of(seen)(seen).float()


def train_encoder(
    components: Components, rebuilt: Tensor, *, training: Training, seed: int
) -> AttackNetwork:
    """Return an encoder trained with a decoder that reconstructs the features ``[n, k]``.

    Args:
        components: inputs of the encoder.
        rebuilt: features of the same records ``[n, k]``.
        training: settings of both networks; the last epoch counts.
        seed: seed of weights, dropout and batches.
    """
    generator = torch_stream(seed, "encoder")
    with one_thread():
        encoder = AttackNetwork(
            components,
            kernels=training.kernels,
            rate=training.dropout,
            generator=generator,
            deviation=training.deviation,
        )
        with torch.device("meta"):
            layers = nn.Linear(1, DECODER), nn.ReLU(), nn.Linear(DECODER, rebuilt.shape[1])
        decoder = initialise(nn.Sequential(*layers), generator=generator)
        if training.deviation is not None:
            set_paper_weights(decoder, training.deviation, generator)
        both = [*encoder.parameters(), *decoder.parameters()]
        optimizer = torch.optim.Adam(both, lr=training.lr)
        for _ in range(training.epochs):
            for batch in torch.split(torch.randperm(len(rebuilt), generator=generator), BATCH):
                optimizer.zero_grad()
                again = decoder(encoder(components.rows(batch))[:, None])
                torch.autograd.backward((again - rebuilt[batch]).square().mean())
                optimizer.step()
    return encoder
