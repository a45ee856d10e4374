"""Pictures and warnings of a result; pictures agree with the figures."""

from html import unescape

import numpy as np
import pytest

import leakgauge as lg
from leakgauge.core.rng import stream

pytestmark = pytest.mark.usefixtures("few_scales")

IMAGES = stream(0, "pictures").integers(0, 256, (12, 8, 8, 1), dtype=np.uint8)
DATA = lg.load(IMAGES, np.arange(12) % 3)
SMALL = {"reconstruction.images": 2, "reconstruction.iterations": 5, "reconstruction.net": "lenet"}


def test_a_result_has_the_true_and_the_rebuilt_images() -> None:
    result = lg.audit(DATA, "reconstruction", settings=SMALL, defenses=["sign"])
    shown = result.pictures
    attempts = ["leakgauge", "leakgauge, sign, static", "leakgauge, sign, adaptive"]
    assert list(shown) == ["truth", *attempts]
    assert all(one.shape == (2, 1, 8, 8) for one in shown.values())
    known = {image.tobytes() for image in IMAGES}
    assert all(image.numpy().tobytes() in known for image in shown["truth"])
    figures = result.to_pandas().query("metric == 'psnr'")
    for name, measured in zip(attempts, figures["value"], strict=True):
        error = ((shown[name].double() - shown["truth"].double()) / 255).square().mean((1, 2, 3))
        # A picture rounds each pixel to 1 of 256 values.
        assert float((-10 * error.log10()).mean()) == pytest.approx(measured, abs=0.1)


def test_redacted_results_have_no_pictures() -> None:
    redacted = {**SMALL, "reconstruction.redact": True, "reconstruction.iterations": 3}
    assert lg.audit(DATA, "reconstruction", settings=redacted).pictures == {}


def test_python_users_read_warnings_once() -> None:
    steps = {"reconstruction.local_steps": 2, "reconstruction.simulate": True}
    result = lg.audit(DATA, "reconstruction", settings={**SMALL, **steps}, defenses=["sign"])
    assert len(result.warnings) == len(set(result.warnings))
    (dealt,) = [text for text in result.warnings if "ascending order" in text]
    assert dealt in unescape(result.to_html())
    assert lg.audit(DATA, "reconstruction", settings=SMALL).warnings == []
