"""Images from folders, Parquet files and arrays come out as the pixels that went in."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from leakgauge.core.checks import InputError
from leakgauge.data import image_sources as module
from leakgauge.data import (
    read_arrays,
    read_image_arrays,
    read_image_folder,
    read_image_parquet,
)
from leakgauge.data.image_files import decode
from leakgauge.data.image_sources import image_column
from support.references.images import lanczos

COLOURS = {"red": (250, 10, 20), "green": (5, 240, 15), "blue": (0, 30, 200)}


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(pixels: np.ndarray | Image.Image, kind: str = "PNG", **settings) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()


def folder_of(tmp_path: Path, **files: bytes) -> Path:
    """A folder of images, without their suffixes in the names, and a CSV."""
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    rows = [f"{name},{row % 2},p{row}" for row, name in enumerate(files)]
    (tmp_path / "labels.csv").write_text("file,smile,person\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_a_folder_keeps_the_order_of_its_csv(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (40, 40), colour).save(tmp_path / "faces" / f"{name}.png")
    (tmp_path / "Labels.CSV").write_text(
        "smile,file,person\n1,faces/red.png,a\n0,faces/blue.png,b\n1,faces/red.png,a\n"
    )
    found = read_image_folder(tmp_path)
    assert found.pixels.shape == (3, 3, 32, 32)
    assert found.pixels.dtype == np.uint8
    assert found.frame.to_dict("list") == {"smile": [1, 0, 1], "person": ["a", "b", "a"]}
    assert [tuple(image[:, 0, 0]) for image in found.pixels] == [
        COLOURS["red"], COLOURS["blue"], COLOURS["red"]
    ]  # fmt: skip
    assert (found.pixels == found.pixels[..., :1, :1]).all()


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (57, 91), (20, 13)])
def test_images_are_resized_by_the_lanczos_formula(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = noise(*size, 3)
    found = read_image_folder(folder_of(tmp_path, one=encoded(pixels), two=encoded(255 - pixels)))
    for image, truth in zip(found.pixels, (pixels, 255 - pixels), strict=True):
        # Pillow rounds after each of the two directions.
        assert np.abs(image.transpose(1, 2, 0) - lanczos(truth, 32)).max() <= 2
    if size == (32, 32):
        assert (found.pixels[0].transpose(1, 2, 0) == pixels).all()


GRAY = noise(8, 8)
COLOUR = noise(8, 8, 3)
BITS = Image.fromarray(GRAY > 127)
PALETTE = Image.fromarray(GRAY % 4).convert("P")
PALETTE.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120])
TURNED = Image.Exif()
TURNED[0x0112] = 6  # orientation: stored a quarter turn to the left of how it was held
MODES = {
    "gray": (encoded(GRAY), np.stack([GRAY] * 3, -1)),
    "gray, transparent": (encoded(np.stack([GRAY, 255 - GRAY], -1)), np.stack([GRAY] * 3, -1)),
    "bits": (encoded(BITS), np.stack([(GRAY > 127) * 255] * 3, -1)),
    "colour": (encoded(COLOUR), COLOUR),
    "transparent": (encoded(np.concatenate([COLOUR, GRAY[..., None]], -1)), COLOUR),
    "palette": (
        encoded(PALETTE),
        (GRAY % 4)[..., None] * 30 + np.array([10, 20, 30]),
    ),
    "palette, transparent": (
        encoded(PALETTE, transparency=b"\x00\x80"),
        (GRAY % 4)[..., None] * 30 + np.array([10, 20, 30]),
    ),
    "BMP": (encoded(COLOUR, "BMP"), COLOUR),
    "WebP": (encoded(COLOUR, "WEBP", lossless=True), COLOUR),
    "turned": (encoded(COLOUR, exif=TURNED), np.rot90(COLOUR, -1)),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_becomes_rgb(name: str) -> None:
    content, truth = MODES[name]
    assert (decode([("one", content)], side=8)[0].transpose(1, 2, 0) == truth).all()


def test_jpeg_is_near() -> None:
    smooth = np.stack([np.add.outer(np.arange(32), np.arange(32)) * 4] * 3, -1).astype(np.uint8)
    content = encoded(smooth, "JPEG", quality=95)
    found = decode([("one", content)], side=32)[0].transpose(1, 2, 0)
    assert np.abs(found.astype(int) - smooth).max() <= 4


def parquet(tmp_path: Path, values: list, *, as_struct: bool = False, **columns: list) -> Path:
    """A Parquet file with a column of images: plain, or as Hugging Face's datasets write it."""
    if as_struct:
        values = [None if v is None else {"path": "no.png", "bytes": v} for v in values]
    pq.write_table(pa.table({"picture": values, **columns}), tmp_path / "faces.parquet")
    return tmp_path / "faces.parquet"


@pytest.mark.parametrize("as_struct", [False, True])
def test_parquet_is_decoded_in_order_chunk_by_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_struct: bool
) -> None:
    monkeypatch.setattr(module, "_ROWS", 3)
    truth = noise(8, 32, 32, 3)
    file = parquet(tmp_path, [encoded(one) for one in truth], as_struct=as_struct, row=[*range(8)])
    assert image_column(file) == "picture"
    found = read_image_parquet(file)
    assert (found.pixels.transpose(0, 2, 3, 1) == truth).all()
    assert found.frame.to_dict("list") == {"row": [*range(8)]}


def test_an_index_with_a_name_is_a_column(tmp_path: Path) -> None:
    for index in (pd.Index([7, 9], name="person"), pd.Index([7, 9])):
        frame = pd.DataFrame({"x": [encoded(COLOUR)] * 2, "smile": [0, 1]}, index)
        frame.to_parquet(tmp_path / "faces.parquet")
        found = read_image_parquet(tmp_path / "faces.parquet").frame
        assert found.columns.tolist() == [*(["person"] if index.name else []), "smile"]
        assert found.index.tolist() == [0, 1]


def test_bytes_that_are_no_images_leave_a_table(tmp_path: Path) -> None:
    assert image_column(parquet(tmp_path, [b"id", b"ie"], smile=[0, 1])) is None
    assert image_column(parquet(tmp_path, ["text", "more"], smile=[0, 1])) is None
    with pytest.raises(InputError, match="has no column of encoded images"):
        read_image_parquet(tmp_path / "faces.parquet")


@pytest.mark.parametrize("channels", [None, 1, 3, 4])
@pytest.mark.parametrize("size", [(32, 32), (28, 40)])
def test_arrays(tmp_path: Path, channels: int | None, size: tuple[int, int]) -> None:
    shape = size if channels is None else (*size, channels)
    x, sex = noise(5, *shape), np.array(["f", "m", "f", "m", "f"])
    np.savez(tmp_path / "a.npz", x=x, sex=sex, y=np.arange(5), names=np.array(["cat", "dog"]))
    found = read_image_arrays(tmp_path / "a.npz")
    assert found.frame.to_dict("list") == {"sex": sex.tolist(), "y": [0, 1, 2, 3, 4]}
    whole = x.reshape(5, *size, channels or 1)[..., :3]
    assert found.pixels.shape == (5, whole.shape[3], 32, 32)
    truth = np.stack([lanczos(one, 32) for one in whole])
    assert np.abs(found.pixels.transpose(0, 2, 3, 1) - truth).max() <= (
        2 if size != (32, 32) else 1e-9
    )
    told = " ".join(found.notes)
    assert "array 'names' of shape (2,) was left out" in told
    assert ("28 x 40 pixels were resized to 32 x 32" in told) == (size != (32, 32))
    assert ("fourth channel" in told) == (channels == 4)


def refused(call, *args, **settings) -> str:
    with pytest.raises(InputError) as caught:
        call(*args, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert "0x" not in message
    return message


def test_a_table_names_images_of_its_own_folder_only(tmp_path: Path) -> None:
    """Neither by an absolute path, nor by the folder above, nor by a link."""
    outside, inside = tmp_path / "private.png", tmp_path / "folder"
    inside.mkdir()
    Image.new("RGB", (4, 4)).save(outside)
    (inside / "link.png").symlink_to(outside)
    for name in (str(outside), "../private.png", "link.png"):
        (inside / "t.csv").write_text(f"file,label\n{name},1\n")
        with pytest.raises(InputError, match=r"lie outside of its folder.*--allow-outside"):
            read_image_folder(inside)
        assert len(read_image_folder(inside, allow_outside=True).frame) == 1


def test_folders_that_are_refused(tmp_path: Path) -> None:
    good = encoded(COLOUR)

    def made(csv: str | None, **files: bytes) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if csv is not None:
            (folder / "l.csv").write_text(csv)
        return refused(read_image_folder, folder)

    assert "no CSV in the folder" in made(None, one=good)
    assert "2 CSVs in the folder" in (told := made("file,y\none,1\n", **{"m.csv": b"a"}))
    assert "'l.csv', 'm.csv'" in told
    assert "no column 'file'" in (told := made("files,y\none,1\n", one=good))
    assert "did you mean 'files'?" in told
    assert "says nothing about its images" in made("file\none\n", one=good)
    assert "is empty in 1 of 2 rows" in made("file,y\none,1\n,2\n", one=good)
    rows = "".join(f"{name},1\n" for name in ("a", "one", "b", "c", "d"))
    assert "4 of 5 images that" in (told := made("file,y\n" + rows, one=good))
    assert "are missing: 'a', 'b', 'c', ...;" in told
    assert "two' is none of JPEG" in made("file,y\none,1\ntwo,0\n", one=good, two=b"no image")
    assert "two' is none of JPEG" in made("file,y\none,1\ntwo,0\n", one=good, two=b"")
    assert "no folder" in refused(read_image_folder, tmp_path / "nowhere")
    assert "side of images, in pixels is 0" in refused(read_image_folder, tmp_path, side=0)


BROKEN = {
    "cut": (encoded(noise(64, 64, 3))[:3000], "image two cannot be decoded: "),
    "deep": (encoded(noise(8, 8).astype(np.uint16) * 200), "image two has pixels of mode 'I;16'"),
    "program": (encoded(COLOUR, "EPS"), "image two is none of JPEG, PNG"),
    "too large": (
        # A header of 60,000 x 60,000 pixels with no content.
        b"P6 60000 60000 255\n",
        "image two cannot be decoded: Image size (3600000000 pixels) exceeds limit",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_image_that_cannot_be_decoded_is_named(name: str) -> None:
    content, message = BROKEN[name]
    named = [("one", encoded(COLOUR)), ("two", content), ("three", b"")]
    assert message in refused(decode, named, side=32)


def test_no_images_are_refused() -> None:
    assert "no images" in refused(decode, [], side=32)


@pytest.mark.parametrize("rows", [2, 1024])
def test_parquet_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(module, "_ROWS", rows)
    good = encoded(COLOUR)
    file = parquet(tmp_path, [good, good, None], y=[0, 1, 0])
    assert "row 2 of column 'picture'" in refused(read_image_parquet, file)
    file = parquet(tmp_path, [good, good, b"bad"], y=[0, 1, 0])
    assert "row 2 of column 'picture'" in refused(read_image_parquet, file)
    file = parquet(tmp_path, [good])
    assert "says nothing about its images" in refused(read_image_parquet, file)
    file = parquet(tmp_path, [good], second=[good])
    assert "2 columns of images: 'picture', 'second'" in refused(read_image_parquet, file)
    file.write_bytes(file.read_bytes()[:-9])
    assert "cannot be read" in refused(read_image_parquet, file)
    assert "no file" in refused(read_image_parquet, tmp_path / "nowhere.parquet")


X, Y = noise(4, 8, 8, 3), np.arange(4)
ARRAYS = {
    "no x": ({"X": X, "y": Y}, "no array 'x' of images in"),
    "objects": ({"x": X, "y": np.array([None] * 4)}, "array 'y' in"),
    "floats": ({"x": X / 255, "y": Y}, "holds float64; expected uint8 [n, h, w]"),
    "flat": ({"x": X.reshape(4, -1), "y": Y}, "has shape (4, 192); expected uint8 [n, h, w]"),
    "none": ({"x": X[:0], "y": Y}, "is empty, of shape (0, 8, 8, 3)"),
    "no pixels": ({"x": X[:, :0], "y": Y}, "is empty, of shape (4, 0, 8, 3)"),
    "channels first": ({"x": X.transpose(0, 3, 1, 2), "y": Y}, "put the channels last"),
    "five channels": ({"x": noise(4, 8, 8, 5), "y": Y}, "with 1, 3 or 4 channels"),
    "no columns": ({"x": X, "y": Y[:3]}, "says nothing about its images"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_refused(tmp_path: Path, name: str) -> None:
    arrays, message = ARRAYS[name]
    np.savez(tmp_path / "a.npz", **arrays)
    told = refused(read_image_arrays, tmp_path / "a.npz")
    assert message in told
    assert "allow_pickle" not in told


def test_files_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-50])
    assert "is not a .npz file" in refused(read_image_arrays, tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(whole.replace(X.tobytes()[:8], b"deadbeef"))
    assert "cannot be read" in refused(read_image_arrays, tmp_path / "a.npz")


def test_archives_that_hold_more_than_arrays(tmp_path):
    """Files that macOS adds are ignored; any other value that is not an array is named."""
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("__MACOSX/._x.npy", b"whatever")
    assert list(read_image_arrays(tmp_path / "a.npz").frame) == ["y"]
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", b"my images")
    assert "'README.txt'" in refused(read_image_arrays, tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", y=Y, s=Y)
    with zipfile.ZipFile(tmp_path / "b.npz", "a") as archive:
        archive.writestr("x.npy", b"no array")
    with pytest.raises(InputError, match=r"'x' in .* is not an array"):
        read_arrays(tmp_path / "b.npz", x="x", label="y", secrets="s")
