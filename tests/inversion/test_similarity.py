"""PSNR, SSIM, LPIPS, pixels and the matching of a batch, against other libraries and by hand."""

from collections import OrderedDict
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy import stats
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream, torch_stream
from leakgauge.data.encoding import encode_pictures, make_picture_table
from leakgauge.data.named import DATA_VARIABLE
from leakgauge.data.pixels import CIFAR10, CIFAR100, IMAGENET, PLAIN, Pixels
from leakgauge.data.table import Roles
from leakgauge.inversion.metrics.lpips import WEIGHTS_FILE, Lpips, default_lpips
from leakgauge.inversion.metrics.similarity import (
    align_to_truth,
    psnr,
    ssim,
)
from leakgauge.results.statistics import mean_estimate


def pictures(n: int, *shape: int, name: str = "pictures") -> Tensor:
    """Smooth patterns with some noise on top."""
    rng = stream(0, name)
    waves = np.cumsum(np.cumsum(rng.normal(size=(n, *shape)), -1), -2)
    low, high = (f(waves, axis=(-2, -1), keepdims=True) for f in (np.min, np.max))
    return torch.from_numpy((waves - low) / (high - low)).float()


def noisy(images: Tensor, std: float) -> Tensor:
    noise = torch.randn(images.shape, generator=torch_stream(0, "noise"))
    return (images + std * noise).clamp(0, 1)


# --- PSNR -----------------------------------------------------------------------------------------


def test_psnr_is_that_of_the_known_error() -> None:
    truth = pictures(3, 3, 8, 9)
    off = torch.tensor([0.1, 0.01, 0.5]).view(3, 1, 1, 1)
    assert psnr(truth + off, truth) == pytest.approx([20.0, 40.0, 20 * np.log10(2)], abs=1e-4)
    assert psnr(255 * (truth + off), 255 * truth, 255) == pytest.approx(
        psnr(truth + off, truth), abs=1e-3
    )


def test_psnr_of_equal_images_is_finite_and_above_any_other() -> None:
    truth = pictures(2, 1, 8, 8)
    best = psnr(truth, truth)
    assert torch.isfinite(best).all()
    assert (best > psnr(truth + 1e-6, truth)).all()


# --- SSIM -----------------------------------------------------------------------------------------


def literal_ssim(a: np.ndarray, b: np.ndarray, peak: float = 1.0) -> float:
    """Wang et al., Eq. 13, for one channel ``[h, w]``, with SciPy's own Gaussian."""

    def mean(x: np.ndarray) -> np.ndarray:
        return gaussian_filter(x, 1.5, truncate=5 / 1.5)[5:-5, 5:-5]

    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    return float(
        np.mean((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    )


@pytest.mark.parametrize(
    ("shape", "peak"), [((1, 11, 11), 1.0), ((3, 32, 32), 1.0), ((3, 20, 45), 255.0)]
)
def test_ssim_is_the_formula(shape: tuple[int, ...], peak: float) -> None:
    truth = peak * pictures(4, *shape)
    found = peak * noisy(truth / peak, 0.1)
    wanted = [
        np.mean([literal_ssim(a, b, peak) for a, b in zip(x, y, strict=True)])
        for x, y in zip(found.double().numpy(), truth.double().numpy(), strict=True)
    ]
    assert ssim(found, truth, peak).numpy() == pytest.approx(wanted, abs=1e-10)


def test_ssim_is_that_of_scikit_image() -> None:
    metrics = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed")
    truth = pictures(4, 3, 32, 40)
    for std in (0.02, 0.2, 1.0):
        found = noisy(truth, std)
        wanted = [
            metrics.structural_similarity(
                a,
                b,
                channel_axis=0,
                data_range=1.0,
                gaussian_weights=True,
                sigma=1.5,
                use_sample_covariance=False,
            )
            for a, b in zip(found.double().numpy(), truth.double().numpy(), strict=True)
        ]
        assert ssim(found, truth).numpy() == pytest.approx(wanted, abs=1e-10)
        assert psnr(found, truth)[0] == pytest.approx(
            metrics.peak_signal_noise_ratio(
                truth[0].double().numpy(), found[0].double().numpy(), data_range=1.0
            ),
            abs=1e-6,
        )


# --- LPIPS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(data_folder: Path) -> Path:
    return data_folder / WEIGHTS_FILE


def alexnet(weights: dict[str, Tensor]) -> nn.Sequential:
    """The layers of torchvision's AlexNet up to the last ReLU."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, layer in enumerate(
        (
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
        )
    ):
        layers[str(number)] = layer
    net = nn.Sequential(layers)
    own = {name.removeprefix("features."): leaf for name, leaf in weights.items()}
    net.load_state_dict({name: own[name] for name in net.state_dict()})
    return net


def literal_lpips(weights: dict[str, Tensor], a: Tensor, b: Tensor) -> float:
    """Zhang et al., Eq. 1, for one pair ``[3, h, w]``, place by place."""
    net, heads, total = alexnet(weights), 0, 0.0
    centre = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    spread = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    x, y = ((image - centre) / spread for image in (a, b))
    for layer in net:
        x, y = layer(x), layer(y)
        if isinstance(layer, nn.ReLU):
            head = weights[f"lin{heads}.weight"].flatten()
            here = [
                float(head @ (u / u.norm() - v / v.norm()) ** 2)
                for u, v in zip(x.flatten(1).T, y.flatten(1).T, strict=True)
            ]
            total, heads = total + float(np.mean(here)), heads + 1
    return total


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 64, 48), (3, 96, 96)])
@torch.no_grad()
def test_lpips_is_the_distance_of_unit_features(weights: Path, shape: tuple[int, ...]) -> None:
    truth = pictures(2, *shape)
    found = noisy(truth, 0.3)
    leaves = load_file(weights)
    wanted = [literal_lpips(leaves, a, b) for a, b in zip(found, truth, strict=True)]
    # LPIPS rounds ImageNet's means and spreads to three digits of its own scale.
    assert Lpips.load(weights)(found, truth).numpy() == pytest.approx(wanted, rel=5e-3)


def test_lpips_is_that_of_the_package_lpips(data_folder: Path, weights: Path) -> None:
    """Figures of lpips 0.1.4, run with these weights on test images 0 to 3 against 4 to 7."""
    with np.load(data_folder / "cifar10" / "cifar10_subset.npz") as arrays:
        x = PLAIN.encode(arrays["x_test"][:8])
    assert Lpips.load(weights)(x[:4], x[4:]).numpy() == pytest.approx(
        [0.1377385, 0.2369279, 0.2881714, 0.2930647], abs=1e-6
    )


def test_lpips_of_the_official_pairs(data_folder: Path, weights: Path) -> None:
    folder = data_folder / "lpips"
    if not folder.is_dir():
        pytest.skip(f"{DATA_VARIABLE} has no folder lpips with ex_ref.png, ex_p0.png, ex_p1.png")
    image = pytest.importorskip("PIL.Image")
    ref, p0, p1 = (
        PLAIN.encode(np.asarray(image.open(folder / f"ex_{name}.png").convert("RGB"))[None])
        for name in ("ref", "p0", "p1")
    )
    lpips = Lpips.load(weights)
    assert float(lpips(ref, p0)) == pytest.approx(0.722, abs=5e-4)
    assert float(lpips(ref, p1)) == pytest.approx(0.138, abs=5e-4)


def test_lpips_takes_small_and_gray_images(weights: Path) -> None:
    lpips = Lpips.load(weights)
    truth = pictures(2, 1, 28, 20)
    near, far = lpips(noisy(truth, 0.05), truth), lpips(noisy(truth, 0.5), truth)
    assert (near < far).all()
    assert lpips(truth, truth).tolist() == [0.0, 0.0]
    gray, colour = pictures(2, 1, 32, 32), noisy(pictures(2, 1, 32, 32), 0.2)
    assert torch.equal(
        lpips(gray, colour), lpips(gray.expand(2, 3, 32, 32), colour.expand(2, 3, 32, 32))
    )


def test_without_weights_there_is_no_lpips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert default_lpips() is None
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert default_lpips() is None


def test_the_usual_weights_are_found(weights: Path) -> None:
    found = default_lpips()
    assert found is not None
    assert set(found.weights) == set(load_file(weights))


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read"):
        Lpips.load(tmp_path / "none.safetensors")
    (tmp_path / "pickle.safetensors").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(InputError, match=r"cannot be read.*expected safetensors"):
        Lpips.load(tmp_path / "pickle.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match=r"no 'features\.0\.weight'"):
        Lpips.load(tmp_path / "other.safetensors")
    save_file({"features.0.weight": torch.zeros(1)}, tmp_path / "shape.safetensors")
    with pytest.raises(InputError, match=r"\(1,\); expected \(64, 3, 11, 11\)"):
        Lpips.load(tmp_path / "shape.safetensors")


# --- a batch beside the truth ---------------------------------------------------------------------


def test_the_match_is_the_best_of_all_orders() -> None:
    truth = pictures(5, 3, 6, 6)
    found = torch.rand(truth.shape, generator=torch_stream(0, "found"))
    best = min(permutations(range(5)), key=lambda o: float((found[list(o)] - truth).square().sum()))
    assert align_to_truth(found, truth).tolist() == list(best)


def test_the_match_puts_back_what_was_shuffled() -> None:
    truth = pictures(20, 3, 8, 8)
    shuffle = torch.from_numpy(stream(0, "shuffle").permutation(20))
    found = noisy(truth, 0.05)[shuffle]
    assert torch.equal(shuffle[align_to_truth(found, truth)], torch.arange(20))


# --- means ----------------------------------------------------------------------------------------


def test_the_interval_of_the_mean_is_that_of_a_t_test() -> None:
    values = torch.from_numpy(stream(0, "values").normal(20, 3, size=9))
    found = mean_estimate(values, unit="dB", confidence=0.9)
    low, high = stats.ttest_1samp(values.numpy(), 0.0).confidence_interval(0.9)
    assert (found.value, found.low, found.high) == pytest.approx((float(values.mean()), low, high))
    assert (found.n, found.unit, found.confidence) == (9, "dB", 0.9)


def test_a_paired_gain_has_the_interval_of_a_paired_test() -> None:
    rng = stream(0, "pairs")
    level, gain = rng.normal(20, 5, size=8), rng.normal(2, 0.5, size=8)
    first, second = torch.from_numpy(level + gain), torch.from_numpy(level)
    found = mean_estimate(first - second)
    low, high = stats.ttest_rel(first.numpy(), second.numpy()).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_image_has_no_interval() -> None:
    found = mean_estimate(torch.tensor([17.0]))
    assert (found.value, found.low, found.high, found.n) == (17.0, 17.0, 17.0, 1)


# --- pixels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pixels", [CIFAR10, CIFAR100, IMAGENET, PLAIN])
def test_pixels_come_back(pixels: Pixels) -> None:
    images = stream(0, "uint8").integers(0, 256, size=(4, 3, 5, 6), dtype=np.uint8)
    x = pixels.encode(images)
    assert torch.equal(x, pixels.encode(images.transpose(0, 2, 3, 1)))
    assert (255 * pixels.decode(x)).numpy() == pytest.approx(images, abs=1e-4)
    assert torch.equal((255 * pixels.decode(x)).round().to(torch.uint8), torch.from_numpy(images))


def test_the_box_is_black_and_white() -> None:
    images = np.stack([np.zeros((3, 2, 2), np.uint8), np.full((3, 2, 2), 255, np.uint8)])
    black, white = CIFAR10.encode(images)
    assert torch.equal(black, CIFAR10.low.expand(3, 2, 2))
    assert torch.equal(white, CIFAR10.high.expand(3, 2, 2))


def test_learnt_pixels_are_those_of_the_data_room() -> None:
    images = stream(0, "learn").integers(0, 200, size=(6, 3, 5, 5), dtype=np.uint8)
    frame = pd.DataFrame({"label": list("aabbab"), "secret": list("xyxyxy")})
    table, rows = make_picture_table(frame, Roles("label", ("secret",)))
    encoded = encode_pictures(table, images, rows, fit_on=torch.arange(6)).x
    assert torch.allclose(Pixels.learn(images).encode(images), encoded, atol=1e-6)


@pytest.mark.parametrize(
    ("file", "array", "pixels", "tolerance"),
    [
        ("cifar10/cifar10_subset.npz", "x_train", CIFAR10, 0.005),
        ("cifar100/cifar100_600.npz", "x", CIFAR100, 0.02),
    ],
)
def test_the_constants_are_those_of_the_images(
    data_folder: Path, file: str, array: str, pixels: Pixels, tolerance: float
) -> None:
    with np.load(data_folder / file) as arrays:
        found = Pixels.learn(arrays[array])
    assert (*found.mean, *found.std) == pytest.approx((*pixels.mean, *pixels.std), abs=tolerance)


# --- refusals -------------------------------------------------------------------------------------

IMAGE = torch.zeros(2, 3, 16, 16)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: psnr(IMAGE, IMAGE[:1]), r"\[2, 3, 16, 16\] and the truth is \[1, 3, 16, 16\]"),
        (lambda: psnr(IMAGE * torch.nan, IMAGE), r"2 of 2 images hold values that are not finite"),
        (lambda: ssim(IMAGE[..., :10], IMAGE[..., :10]), r"at least 11 pixels"),
        (lambda: mean_estimate(torch.tensor([1.0, torch.inf])), r"1 of 2 scores are not finite"),
        (lambda: mean_estimate(torch.tensor([])), r"\[0\]; expected \[n\]"),
        (lambda: CIFAR10.encode(IMAGE), r"float32 \[2, 3, 16, 16\]; expected uint8"),
        (lambda: CIFAR10.decode(IMAGE[:, :1]), r"expected \[\.\.\., 3, h, w\]"),
        (lambda: Pixels((0.5,), (0.0,)), r"expected all above 0"),
    ],
)
def test_what_is_no_image_is_refused_in_one_line(call, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        call()
    assert "\n" not in str(refused.value)
