"""Named datasets: tables and images, their sources, terms and default roles.

All but ``randhie`` and ``heritage`` are read from the data folder, and raise ``InputError`` if it
is not known or does not hold the file. Images are resized to ``side`` pixels.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.data.heritage import heritage
from leakgauge.data.image_sources import Images, read_image_arrays, read_image_parquet
from leakgauge.data.read import array_table, read_npz, read_table
from leakgauge.data.table import Roles

DATA_VARIABLE = "LEAKGAUGE_DATA"

_RANDHIE = Path(__file__).parent / "tables" / "randhie.parquet"

_COVARIATES = (
    *("site", "year", "coins", "idp", "mdeoff", "pioff", "tookphys", "black", "xage", "female"),
    *("educdec", "income", "num", "xghindx", "hlthg", "hlthf", "hlthp", "mhi", "disea", "physlm"),
)

_CREMA_D_OTHERS = ("file", "sentence", "level", "age", "race", "ethnicity")
_AGE_EDGES = (-1, 18, 40, 60, 200)  # years; a range includes its upper edge
_AGE_GROUPS = ("0-18", "19-40", "41-60", "61+")
_RACES = ("White", "Black", "Asian", "Indian", "Others")
_CCS24_EDGES = (-1, 30, 60, 200)
_CCS24_GROUPS = ("0-30", "31-60", "61+")
_CCS24_RACES = _RACES[:4]
_CIFAR10_SIZES = {"train": 50_000, "test": 10_000}


def randhie() -> pd.DataFrame:
    """Return the RAND Health Insurance Experiment: 20,190 yearly records of 5,912 users.

    The experiment assigned families at random to insurance plans that paid different shares of
    their medical bills, and followed them for three to five years. The table comes with leakgauge
    and needs no download.

    Columns: ``zper`` names the user (the group; a user's rows are not independent);
    ``any_visit`` (no, yes: the label) says whether the user saw a doctor face to face that year;
    ``female`` is the secret (no, yes). The others were known before the year's care: site, study
    year, plan (``coins`` coinsurance in %, ``idp`` individual deductible, ``mdeoff`` maximum
    expenditure, ``pioff`` participation incentive), ``tookphys`` (baseline physical), ``black``,
    ``xage``, ``educdec`` (education of the decision maker), ``income``,
    ``num`` (family size), and health at the baseline: ``xghindx`` (general index), ``hlthg``,
    ``hlthf``, ``hlthp`` (good, fair, poor), ``mhi`` (mental), ``disea`` (chronic diseases) and
    ``physlm`` (physical limitations).

    Left out:
        - outcomes of the same year's care, which follow from the visits:
          ``mdvis`` (it is the label), ``notmdvis``, ``mentvis``, ``totadm``, ``inpmis``, all
          expenses (``outpdol``, ``drugdol``, ``suppdol``, ``mentdol``, ``inpdol``, ``meddol``,
          ``lnmeddol``), ``binexp``; and ``time``, the share of the year that was observed;
        - ``fchild`` (female child), which names the secret; ``child`` repeats ``xage``;
        - repetitions of other columns: ``plan`` (of the plan's terms), ``ghindx`` (``xghindx`` is
          the same with its gaps filled), ``logc``, ``lpi``, ``fmde``, ``linc``, ``lfam``, ``lnum``.

    Source: RAND Corporation; data of Cameron and Trivedi, Microeconometrics (2005), as
    carried by statsmodels (``datasets/randhie/src/randhie.csv``); ``data/tables/README.md`` names
    the file exactly. Terms: public domain, as statsmodels states.

    >>> randhie()["any_visit"].value_counts().to_dict()
    {'yes': 13882, 'no': 6308}
    """
    raw = read_table(_RANDHIE)
    kept = raw[["zper", *_COVARIATES]].copy()
    kept["female"] = raw["female"].map({0: "no", 1: "yes"})
    # Sites are numbered, not ordered.
    kept["site"] = "site " + raw["site"].astype(str)
    kept["any_visit"] = (raw["mdvis"] > 0).map({False: "no", True: "yes"})
    return kept


def adult() -> pd.DataFrame:
    """Return the UCI census income table (Adult): 48,842 records, one for each user.

    Read from ``adult/adult.parquet`` in the data folder. Columns: the original ones (``income`` is
    the label, ``sex`` the secret; ``"?"`` marks an unknown value), and ``split``, the name of the
    original file, which is not a feature.

    Source: Kohavi and Becker, UCI Machine Learning Repository. Terms: CC BY 4.0.
    """
    return read_table(_stored("adult", "adult/adult.parquet"))


def crema_d() -> pd.DataFrame:
    """Return emotional speech (CREMA-D): 2,000 clips of 78 actors, happy or sad.

    Read from ``crema_d/crema_d_emobase_hap_sad.parquet`` in the data folder. Columns: ``emotion``
    (the label), ``sex`` (the secret), ``actor`` (the group), 988 emobase features of the clip, and
    ``file``, ``sentence``, ``level``, ``age``, ``race`` and ``ethnicity``, which are not features.

    Source: Cao et al., IEEE Transactions on Affective Computing 2014; features by openSMILE.
    Terms: ODbL 1.0 (database), DbCL 1.0 (contents).
    """
    return read_table(_stored("crema_d", "crema_d/crema_d_emobase_hap_sad.parquet"))


def location30() -> pd.DataFrame:
    """Return the visits of 5,010 users of Foursquare in Bangkok: 446 places and kinds, 1 or 0.

    Read from ``location30/location30.npz`` in the data folder. The label ``y`` is one of 30 groups
    of users. It replaces Purchase100, which cannot be shipped, in membership inference.

    Source: Shokri et al., S&P 2017, from check-ins of Yang et al., 2015. Terms: none stated.
    """
    arrays = read_npz(_stored("location30", "location30/location30.npz"), ("x", "y"))
    return array_table(arrays["x"], y=arrays["y"])


def celeba(*, side: int = 32) -> Images:
    """Return faces of celebrities (CelebA): 6,086 images of 299 users.

    Read from ``celeba/celeba_faces_64x64.parquet`` in the data folder. Columns: ``identity`` (the
    group) and the 40 attributes, 1 or 0; ``Smiling`` is the label, ``High_Cheekbones`` the secret.

    Source: Liu et al., ICCV 2015. Terms: non-commercial research only.
    """
    faces = read_image_parquet(_stored("celeba", "celeba/celeba_faces_64x64.parquet"), side=side)
    return Images(faces.frame.drop(columns="filename"), faces.pixels, faces.notes)


def utkface(*, side: int = 32) -> Images:
    """Return faces of all ages (UTKFace): 8,000 images.

    Read from ``utkface/utkface_32x32_8k.npz`` in the data folder. Columns: ``age`` in years,
    ``age_group`` (the label), ``race`` (the secret) and ``gender``. The original file names repeat
    these and are left out. The rows are sorted by file name, and so by age: shuffle them before
    taking a part.

    Source: Zhang, Song and Qi, CVPR 2017. Terms: non-commercial research only.
    """
    return _utkface("utkface", side, _AGE_EDGES, _AGE_GROUPS)


def utkface_ccs24(*, side: int = 32) -> Images:
    """Return faces of all ages (UTKFace) as Li et al. use them: 7,448 images.

    The columns are those of ``utkface``, with three age groups (to 30, 31 to 60, from 61 years on)
    and the four largest races; images of others are left out. The paper has 22,012 such images, and
    calls the race ethnicity; this file holds a third of the dataset.

    References:
        Li et al., CCS 2024, section 5.1.1.
    """
    faces = _utkface("utkface-ccs24", side, _CCS24_EDGES, _CCS24_GROUPS)
    kept = faces.frame["race"].isin(_CCS24_RACES).to_numpy()
    return Images(faces.frame[kept].reset_index(drop=True), faces.pixels[kept], faces.notes)


def _utkface(name: str, side: int, edges: Sequence[int], groups: Sequence[str]) -> Images:
    """Return all images, with age groups by their upper edges in years (inclusive)."""
    faces = read_image_arrays(_stored(name, "utkface/utkface_32x32_8k.npz"), side=side)
    known = faces.frame
    frame = pd.DataFrame(
        {
            "age": known["age"],
            "age_group": pd.cut(known["age"], edges, labels=groups).astype(str),
            "gender": known["gender"].map({0: "male", 1: "female"}),
            "race": known["race"].map(dict(enumerate(_RACES))),
        }
    )
    return Images(frame, faces.pixels, (*faces.notes, "the rows come in order of file names"))


def cifar10(*, side: int = 32) -> Images:
    """Return the first 2,000 test images of CIFAR-10; the column ``y`` is the class.

    Read from ``cifar10/cifar10_subset.npz`` in the data folder.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    return read_image_arrays(_stored("cifar10", "cifar10/cifar10_subset.npz"), side=side)


def cifar10_train(*, side: int = 32) -> Images:
    """Return the first 8,000 training images of CIFAR-10; the column ``y`` is the class.

    Read as ``cifar10``. Public classifiers of CIFAR-10 were trained on them.
    """
    path = _stored("cifar10-train", "cifar10/cifar10_subset.npz")
    return read_image_arrays(path, side=side, part="train")


def cifar10_full_train(*, side: int = 32) -> Images:
    """Return all 50,000 training images of CIFAR-10; the column ``y`` is the class.

    Read from ``cifar10/cifar10.npz`` in the data folder, with the arrays ``x_train``, ``y_train``,
    ``x_test`` and ``y_test``. ``experiments/data/cifar10.py`` writes it.

    Source: as ``cifar10``.
    """
    return _cifar10_full("cifar10-full-train", "train", side)


def cifar10_full_test(*, side: int = 32) -> Images:
    """Return all 10,000 test images of CIFAR-10; read as ``cifar10_full_train``."""
    return _cifar10_full("cifar10-full-test", "test", side)


def _cifar10_full(name: str, part: str, side: int) -> Images:
    """Return a whole part of CIFAR-10.

    Raises:
        InputError: also if the file has fewer images than the part.
    """
    images = read_image_arrays(_stored(name, "cifar10/cifar10.npz"), side=side, part=part)
    whole, got = _CIFAR10_SIZES[part], len(images.frame)
    require(
        got == whole,
        f"dataset {name!r}: cifar10/cifar10.npz holds {got:,} images instead of all {whole:,}; "
        "write the file with experiments/data/cifar10.py, or open yours by its path",
    )
    return images


def lfw(*, side: int = 32) -> Images:
    """Return faces from the news (Labeled Faces in the Wild): 13,225 images of 5,743 persons.

    Read from ``lfw/lfw_62x47.parquet`` in the data folder. Columns: ``male`` (the label: 1 or 0;
    8 images of unknown sex are left out) and ``person`` (the group).

    Source: Huang et al., University of Massachusetts 07-49, 2007. Terms: research only.
    """
    faces = read_image_parquet(_stored("lfw", "lfw/lfw_62x47.parquet"), side=side)
    known = faces.frame["male"].to_numpy() >= 0
    frame = faces.frame.loc[known, ["male", "person"]].reset_index(drop=True)
    return Images(frame, faces.pixels[known], faces.notes)


def cifar100(*, side: int = 32) -> Images:
    """Return 600 images of CIFAR-100, five of each class first; column ``y_fine`` is the class.

    Read from ``cifar100/cifar100_600.npz`` in the data folder. They are not a random test sample;
    use them for reconstruction only.

    Source: as ``cifar10``.
    """
    return read_image_arrays(_stored("cifar100", "cifar100/cifar100_600.npz"), side=side)


def imagenet_sample(*, side: int = 32) -> Images:
    """Return 100 images of ImageNet, one of every tenth class; ``class_index`` is the class.

    Read from ``imagenet_sample/imagenet_100.parquet`` in the data folder, at 224 x 224 pixels in
    the file. The class is its number among ImageNet's 1,000, in the order of their WordNet ids.

    Source: Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
    Terms: research and education only.
    """
    path = _stored("imagenet-sample", "imagenet_sample/imagenet_100.parquet")
    images = read_image_parquet(path, side=side)
    return Images(images.frame[["class_index"]], images.pixels, images.notes)


TABLES: Mapping[str, Callable[[], pd.DataFrame]] = {
    read.__name__: read for read in (adult, crema_d, heritage, location30, randhie)
}
"""Tables by name."""

IMAGES: Mapping[str, Callable[..., Images]] = {
    "celeba": celeba,
    "utkface": utkface,
    "utkface-ccs24": utkface_ccs24,
    "cifar10": cifar10,
    "cifar10-train": cifar10_train,
    "cifar10-full-train": cifar10_full_train,
    "cifar10-full-test": cifar10_full_test,
    "cifar100": cifar100,
    "imagenet-sample": imagenet_sample,
    "lfw": lfw,
}
"""Images by name; each takes ``side``."""

ROLES: Mapping[str, Roles] = {
    "adult": Roles("income", ("sex",), drop=("split",)),
    "crema_d": Roles("emotion", ("sex",), group="actor", drop=_CREMA_D_OTHERS),
    "heritage": Roles("Charlson>0", ("sex", "age"), group="MemberID_t"),
    "randhie": Roles("any_visit", ("female",), group="zper"),
    "celeba": Roles("Smiling", ("High_Cheekbones",), group="identity"),
    "utkface": Roles("age_group", ("race",), drop=("age",)),
    "utkface-ccs24": Roles("age_group", ("race",), drop=("age",)),
    "cifar10": Roles("y", ()),
    "cifar10-train": Roles("y", ()),
    "cifar10-full-train": Roles("y", ()),
    "cifar10-full-test": Roles("y", ()),
    "lfw": Roles("male", (), group="person"),
    "location30": Roles("y", ()),
    "cifar100": Roles("y_fine", ()),
    "imagenet-sample": Roles("class_index", ()),
}
"""The default roles of each dataset's columns."""


def data_folder() -> Path | None:
    """Return the folder in the environment variable ``LEAKGAUGE_DATA``, or None."""
    folder = os.environ.get(DATA_VARIABLE)
    return Path(folder) if folder else None


def _stored(name: str, path: str) -> Path:
    """Return the file of a dataset in the data folder."""
    folder = data_folder()
    if folder is None:
        raise InputError(
            f"dataset {name!r} is read from a file; set the environment variable {DATA_VARIABLE} "
            f"to the folder that holds {path}"
        )
    require(
        (folder / path).is_file(),
        f"dataset {name!r}: no file {path} in {str(folder)!r}; set the environment variable "
        f"{DATA_VARIABLE} to the folder that holds it",
    )
    return folder / path
