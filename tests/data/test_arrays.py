"""Records from arrays and from files of arrays."""

import numpy as np
import pandas as pd
import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.data import fingerprint, from_arrays, read_arrays

X = np.arange(12, dtype=np.float64).reshape(6, 2)
Y = np.array([0, 1, 2] * 2)
SEX = np.array([0, 1] * 3)


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_arrays_and_tensors_give_the_same_dataset():
    users = np.array([7, 7, 3, 3, 9, 9])
    one = from_arrays(X, Y, {"sex": SEX}, users=users)
    two = from_arrays(
        torch.tensor(X), torch.tensor(Y), {"sex": torch.tensor(SEX)}, users=torch.tensor(users)
    )
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(one.rows(torch.tensor([1, 0, 2, 3, 4, 5])))
    assert one.x.dtype == torch.float32
    assert one.y.dtype == one.secrets["sex"].dtype == torch.int64
    assert one.users is not None
    assert one.users.tolist() == [1, 1, 0, 0, 2, 2]


def test_the_callers_arrays_are_not_shared():
    x = torch.ones(6, 2)
    data = from_arrays(x, Y, {"sex": SEX})
    x.zero_()
    assert float(data.x.sum()) == 12
    read_only = X.astype(">f4")
    read_only.setflags(write=False)
    assert from_arrays(read_only, Y, {"sex": SEX}).x.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((6, 5, 4, 3), (6, 3, 5, 4)), ((6, 5, 4), (6, 1, 5, 4)), ((6, 3, 5, 9), (6, 3, 5, 9))],
)
def test_images_get_channels_first_and_lie_in_0_to_1(shape, expected):
    x = images(*shape)
    found = from_arrays(x, Y, {"sex": SEX}).x
    assert tuple(found.shape) == expected
    moved = np.moveaxis(x, 3, 1) if shape[-1] == 3 else x.reshape(expected)
    np.testing.assert_allclose(found.numpy(), moved / 255, rtol=1e-6)


def test_a_table_of_bytes_is_no_image():
    assert from_arrays(images(6, 9) // 200, Y, {"sex": SEX}).x.max() == 1.0


def broken(value: float) -> np.ndarray:
    x = X.copy()
    x[1:3] = value
    return x


@pytest.mark.parametrize(
    ("x", "y", "secret", "users", "message"),
    [
        (Y, Y, SEX, None, "x has shape (6,); expected [n, ...] with features"),
        (X[:0], Y[:0], SEX[:0], None, "x is empty, of shape (0, 2)"),
        (X.astype(str), Y, SEX, None, "x holds <U32; expected numbers"),
        (broken(np.nan), Y, SEX, None, "x is NaN or infinite in 4 places of 2 records"),
        (broken(1e300), Y, SEX, None, "x is NaN or infinite in 4 places of 2 records"),
        (images(6, 5, 4, 2), Y, SEX, None, "images have shape (6, 5, 4, 2); expected [n, h, w, c]"),
        (X, Y[:5], SEX, None, "y has 5 records; x has 6"),
        (X, X[:, None], SEX, None, "y has shape (6, 1, 2); expected [6] or [6, k]"),
        (X, Y * 1j, SEX, None, "y holds complex128; expected codes 0, 1, ... or numbers"),
        (X, X[:3], SEX, None, "y has 3 records; x has 6"),
        (X, broken(np.nan), SEX, None, "y is NaN or infinite in 4 places of 2 records"),
        (X, Y * 0.0, SEX, None, "y has one value only, 0.0"),
        (X, Y - 1, SEX, None, "y is negative in 2 of 6 records"),
        (X, Y * 0, SEX, None, "y has one value only, 0"),
        (X, Y, SEX[:4], None, "secret 'sex' has 4 records; x has 6"),
        (X, Y, SEX - 1, None, "secret 'sex' is negative in 3 of 6 records"),
        (X, Y, SEX * 0 + 1, None, "secret 'sex' has one value only, 1"),
        (X, Y, SEX, X[:, 0], "users holds float64; expected whole numbers"),
        (X, Y, SEX, Y[:3], "users has 3 records; x has 6"),
    ],
)
def test_arrays_are_refused_in_one_line(x, y, secret, users, message):
    with pytest.raises(InputError) as caught:
        from_arrays(x, y, {"sex": secret}, users=users)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_with_text(tmp_path):
    sex, who = np.array(["m", "f"] * 3), np.array(["ann", "bob", "ann"] * 2)
    np.savez(tmp_path / "a.npz", x=images(6, 5, 4, 3), y=Y, sex=sex, who=who)
    data = read_arrays(tmp_path / "a.npz", x="x", label="y", secrets="sex", group="who")
    assert data.x.shape == (6, 3, 5, 4)
    assert data.secrets["sex"].tolist() == [1, 0] * 3
    assert data.users is not None
    assert data.users.tolist() == [0, 1, 0] * 2
    assert data.schema is not None
    assert data.schema.classes == ("0", "1", "2")
    assert data.schema.secrets == {"sex": ("f", "m")}


@pytest.mark.parametrize("x", ["embedding", ["f*"], ("f0", "f1")])
def test_parquet_of_features(tmp_path, x):
    frame = pd.DataFrame(X, columns=["f0", "f1"]).assign(
        embedding=list(X), mood=["sad", "hap", "sad"] * 2, sex=SEX, actor=Y
    )
    frame.to_parquet(tmp_path / "a.parquet")
    data = read_arrays(tmp_path / "a.parquet", x=x, label="mood", secrets=["sex"], group="actor")
    assert data.x.tolist() == X.tolist()
    assert data.y.tolist() == [1, 0, 1] * 2
    assert data.schema is not None
    assert data.schema.classes == ("hap", "sad")


REFUSED_FILES = [
    ("a.npz", {"x": "z"}, "no 'z' in "),
    ("a.npz", {"label": "yy"}, "did you mean 'y'?"),
    ("a.npz", {"label": "sex"}, "['sex', 'sex'] name one array for two roles"),
    ("a.npz", {"x": ["x"]}, "x is ['x']; expected the name of one array"),
    ("a.npz", {"label": "things"}, "a.npz' holds Python objects; save it as text"),
    ("text.npz", {}, "is not a .npz file, or only a part of one"),
    ("torn.npz", {}, "is not a .npz file, or only a part of one"),
    ("spoilt.npz", {}, "spoilt.npz' cannot be read: Bad CRC"),
    ("b.npz", {}, "no file "),
    ("a.npy", {}, "expected a .npz or .parquet file"),
    ("a.parquet", {"x": "nope*"}, "no column 'nope*' for x"),
    ("a.parquet", {"x": "mood"}, "column 'mood' holds no numbers"),
    ("a.parquet", {"x": "ragged"}, "column 'ragged' holds lists that differ in length"),
    ("a.parquet", {"x": "x", "label": "gaps"}, "'gaps' is missing in 3 of 6 records"),
]


@pytest.mark.parametrize(("name", "names", "message"), REFUSED_FILES)
def test_files_are_refused_in_one_line(tmp_path, name, names, message):
    np.savez(tmp_path / "a.npz", x=X, y=Y, sex=SEX, things=np.array([None, "a"] * 3, dtype=object))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "spoilt.npz").write_bytes(whole.replace(X.tobytes(), X[::-1].tobytes()))
    (tmp_path / "text.npz").write_text("x,y\n1,2\n")
    (tmp_path / "a.npy").write_bytes(b"")
    pd.DataFrame(
        {
            "x": X[:, 0],
            "y": Y,
            "sex": SEX,
            "mood": ["a", "b"] * 3,
            "gaps": ["a", None] * 3,
            "ragged": [[1.0], [1.0, 2.0]] * 3,
        }
    ).to_parquet(tmp_path / "a.parquet")
    settings = {"x": "x", "label": "y", "secrets": "sex", **names}
    with pytest.raises(InputError) as caught:
        read_arrays(tmp_path / name, **settings)
    assert message in str(caught.value)
    assert "allow_pickle" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_real_images_and_speech(data_folder):
    with np.load(data_folder / "location30" / "location30.npz", allow_pickle=False) as arrays:
        data = from_arrays(arrays["x"], arrays["y"], {"first": arrays["x"][:, 0]})
    assert data.x.shape == (5010, 446)
    speech = read_arrays(
        data_folder / "crema_d" / "crema_d_emobase_hap_sad.parquet",
        x=["pcm_*", "mfcc_*"],
        label="emotion",
        secrets="sex",
        group="actor",
    )
    assert speech.users is not None
    assert int(speech.users.max()) + 1 == 78
    assert torch.bincount(speech.y).tolist() == [1000, 1000]


@pytest.mark.parametrize(("offset", "value", "says"), [(6, 1, "encrypted"), (8, 77, "compression")])
def test_archives_that_no_array_can_be_read_from(tmp_path, offset, value, says):
    """Flags of the headers: bytes 6 and 8 of a file's, two later in the directory's."""
    np.savez(tmp_path / "a.npz", x=images(6, 5, 4, 3), y=Y, s=Y)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        at = content.find(mark)
        while at >= 0:
            content[at + offset + shift] = value
            at = content.find(mark, at + 1)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match=f"cannot be read: .*{says}"):
        read_arrays(tmp_path / "a.npz", x="x", label="y", secrets="s")
