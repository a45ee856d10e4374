"""The networks, their first weights, and weights from files."""

import hashlib
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.models import (
    NETS,
    SCHEMES,
    build,
    cnn,
    fcnet,
    initialise,
    lenet,
    load_weights,
    mlp,
    read_state,
    resnet20,
    resnet50,
    resnet56,
    slim,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def digest(model: nn.Module) -> str:
    values = (value.detach().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(b"".join(values)).hexdigest()[:16]


def small(name: str, init: str = "pytorch", seed: int = 0) -> nn.Module:
    return build(name, channels=3, classes=10, side=32, init=init, generator=seeded(seed))


def test_the_first_networks_keep_their_weights() -> None:
    """Digests of the weights before the schemes had names."""
    assert digest(mlp(5, 3, (7, 4), generator=seeded(3))) == "8ad415d653c4f824"
    assert digest(cnn(3, 10, generator=seeded(3))) == "e67436ddbbc9b7ec"


def test_pytorch_draws_as_pytorch_does() -> None:
    """Weights of a real layer and ours agree in their first two moments and their range."""
    torch.manual_seed(0)
    theirs = nn.Conv2d(32, 64, 3)
    ours = initialise(nn.Conv2d(32, 64, 3, device="meta"), generator=seeded())
    for wanted, found in zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True):
        assert float(found.abs().max()) == pytest.approx(float(wanted.abs().max()), rel=0.05)
        assert float(found.std()) == pytest.approx(float(wanted.std()), rel=0.2)


def test_he_keeps_the_variance_of_relu_layers() -> None:
    """The purpose of He et al.: mean squares stay constant through many layers."""
    layers = [(nn.Linear(512, 512, device="meta"), nn.ReLU()) for _ in range(10)]
    model = initialise(nn.Sequential(*itertools.chain(*layers)), "he", generator=seeded())
    inputs = torch.randn(64, 512, generator=seeded(1))
    assert float(model(inputs).detach().square().mean()) == pytest.approx(1, rel=0.3)
    assert not any(layer.bias.any() for layer in model if isinstance(layer, nn.Linear))


@pytest.mark.parametrize("shape", [(64, 3, 3, 3), (64, 48, 3, 3), (64, 8, 5, 5)])
def test_he_goes_by_the_fan_in(shape: tuple[int, ...]) -> None:
    layer = nn.Conv2d(shape[1], shape[0], shape[2], device="meta")
    wanted = math.sqrt(2 / math.prod(shape[1:]))
    found = float(initialise(layer, "he", generator=seeded()).weight.detach().std())
    assert found == pytest.approx(wanted, rel=0.06)


def test_he_by_fan_out_is_that_of_torchvision() -> None:
    """A convolution's inputs change with its outputs; nothing else is drawn as by ``he``."""
    made = [nn.Conv2d(3, 64, 3), nn.Conv2d(48, 64, 3, stride=2), nn.Linear(512, 10)]
    stem, inner, head = initialise(
        nn.Sequential(*made).to("meta"), "he-fan-out", generator=seeded()
    )
    for layer in (stem, inner):
        assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / 576), rel=0.06)
        assert not layer.bias.any()
    assert float(head.weight.detach().abs().max()) == pytest.approx(1 / math.sqrt(512), rel=0.01)
    assert head.bias.any()


def test_an_untrained_resnet_is_sure_of_itself_by_fan_in_alone() -> None:
    x = torch.randn(8, 3, 32, 32, generator=seeded(1))
    spread = {
        init: float(small("resnet20-4", init).eval()(x).detach().std())
        for init in ("he", "he-fan-out")
    }
    assert spread["he-fan-out"] < 4 < 10 < spread["he"]


def test_wide_uniform_is_that_of_dlg() -> None:
    values = torch.cat([v.flatten() for v in params_of(small("lenet", "wide-uniform")).values()])
    assert float(values.abs().max()) == pytest.approx(0.5, abs=1e-3)
    assert float(values.var()) == pytest.approx(1 / 12, rel=0.05)


def test_xavier_is_that_of_glorot_and_bengio() -> None:
    """Equal to the mean of fan-in and fan-out: the variance of U(-b, b) is b^2 / 3."""
    layer = initialise(nn.Conv2d(40, 60, 3, device="meta"), "xavier", generator=seeded())
    ins, outs = 40 * 9, 60 * 9
    assert float(layer.weight.detach().abs().max()) == pytest.approx(
        (6 / (ins + outs)) ** 0.5, rel=1e-3
    )
    assert float(layer.weight.detach().var()) == pytest.approx(2 / (ins + outs), rel=0.03)
    assert not layer.bias.any()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_normalisation_begins_as_nothing(scheme: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)).to("meta")
    batch, group = initialise(model, scheme, generator=seeded())[1:]
    inputs = torch.randn(5, 4, 6, 6, generator=seeded(1))
    torch.testing.assert_close(batch.eval()(inputs), inputs, rtol=1e-4, atol=1e-5)
    assert int(batch.num_batches_tracked) == 0
    plain = torch.nn.functional.group_norm(inputs, 2)
    torch.testing.assert_close(group(inputs), plain)


def test_initialisations_that_are_refused() -> None:
    with pytest.raises(InputError, match="dead point"):
        small("slim", "zeros")
    with pytest.raises(InputError, match="did you mean 'he'"):
        small("slim", "hee")
    with pytest.raises(InputError, match="Embedding '0' cannot be initialised"):
        initialise(nn.Sequential(nn.Embedding(3, 2)), generator=seeded())


def test_zeros_are_a_dead_point() -> None:
    """Why the scheme is refused: only the last bias has a gradient, the same for any image."""
    model = small("slim")
    zeros = {name: torch.zeros_like(leaf) for name, leaf in params_of(model).items()}
    x = torch.randn(1, 1, 3, 32, 32, generator=seeded())
    found = batch_gradients(Task(model, cross_entropy), zeros, x, torch.tensor([[3]]))
    assert [name for name, leaf in found.items() if leaf.any()] == [list(zeros)[-1]]


def test_the_global_randomness_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for name in NETS:
        build(name, channels=1, classes=2, side=32, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


# By hand for the plain ones; what published files hold for ResNet20; torchvision's page for
# ResNet50, 25,557,032 with a head of 1,000.
COUNTS = {
    "lenet": (3 * 12 * 25 + 12) + 2 * (12 * 12 * 25 + 12) + (768 * 10 + 10),
    "lenet7": (3 * 12 * 25 + 12) + 6 * (12 * 12 * 25 + 12) + (768 * 10 + 10),
    "slim": (3 * 48 * 9 + 48) + 2 * (48 * 48 * 9 + 48) + (48 * 64 * 10 + 10),
    "resnet20": 269_722,
    "resnet20-conv": 272_474,
    "resnet50": 25_557_032 - 990 * 2049,
    "alexnet": (27 + 1) * 16 + (144 + 1) * 32 + (288 + 1) * 64 + 1025 * 256 + 257 * 10,
    "vgg11": (27 + 1) * 16 + 3 * (144 + 1) * 16 + (144 + 1) * 32 + (288 + 1) * (32 + 64)
    + (576 + 1) * 64 + 1025 * 256 + 257 * 128 + 129 * 10,
    "fcnet": (3072 + 1) * 32 + 7 * (32 + 1) * 32 + (32 + 1) * 10,
    "lenet-relu": (3 * 12 * 25 + 12) + 2 * (12 * 12 * 25 + 12) + (768 * 10 + 10),
    "alexnet-3fc": (27 + 1) * 32 + (288 + 1) * 64 + (576 + 1) * 128 + 2 * (1152 + 1) * 128
    + 513 * 256 + 257 * 128 + 129 * 10,
    "cnn-2": (27 + 1) * 16 + (144 + 1) * 32 + (32 * 64 + 1) * 128 + 129 * 10,
    "mlp-4": (3072 + 1) * 256 + 257 * 128 + 129 * 64 + 65 * 10,
    "cnn-ccs24": (75 + 1) * 8 + (200 + 1) * 16 + (400 + 1) * 64 + 1025 * 16 + 17 * 10,
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_the_number_of_weights(name: str) -> None:
    assert sum(value.numel() for value in small(name).parameters()) == COUNTS[name]


def test_the_sizes_that_the_paper_on_inference_states() -> None:
    """Section 5.1.3 of Li et al.: 67,716 for CREMA-D's four emotions, 45,922 for CelebA."""
    speech = mlp(988, 4, (64, 64), generator=seeded())
    faces, ages = (
        build("cnn-ccs24", channels=3, classes=n, side=32, generator=seeded()) for n in (2, 3)
    )
    found = [sum(leaf.numel() for leaf in one.parameters()) for one in (speech, faces, ages)]
    assert found == [67_716, 45_922, 45_922 + 17]


@pytest.mark.parametrize("name", NETS)
def test_every_network_takes_odd_images_and_both_schemes(name: str) -> None:
    model = build(name, channels=1, classes=5, side=27, init="he", generator=seeded())
    assert not any(module.training for module in model.modules())
    x = torch.randn(2, 1, 27, 27, generator=seeded())
    assert list(model(x).shape) == [2, 5]
    again = build(name, channels=1, classes=5, side=27, init="he", generator=seeded())
    assert digest(model) == digest(again)


def test_build_gives_what_the_network_gives() -> None:
    assert digest(small("slim")) == digest(slim(3, 10, generator=seeded()))
    assert digest(small("cnn")) == digest(cnn(3, 10, generator=seeded()))
    assert digest(small("lenet")) == digest(lenet(3, 10, 32, generator=seeded()))


@pytest.mark.parametrize(
    "name", ["lenet", "slim", "resnet20", "resnet20-conv", "alexnet-3fc", "cnn-2", "cnn-ccs24"]
)
def test_a_record_does_not_depend_on_its_batch_and_gradients_have_gradients(name: str) -> None:
    """In eval mode, as pure functions; a second derivative against finite differences."""
    model = small(name).double()
    x = torch.randn(3, 3, 32, 32, generator=seeded(), dtype=torch.float64)
    torch.testing.assert_close(model(x)[:1], model(x[:1]))
    params = {name: leaf.requires_grad_() for name, leaf in params_of(model).items()}
    direction = torch.randn(x[:1].shape, generator=seeded(1), dtype=torch.float64)

    def squared(inputs: Tensor) -> Tensor:
        loss = cross_entropy(functional_call(model, params, (inputs,)), torch.tensor([1]))
        found = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        return torch.stack([leaf.square().sum() for leaf in found]).sum()

    inputs = x[:1].clone().requires_grad_()
    (slope,) = torch.autograd.grad(squared(inputs), inputs)
    step = 1e-7
    ahead, behind = (squared(inputs + sign * step * direction).detach() for sign in (1, -1))
    wanted = float(ahead - behind) / (2 * step)
    assert float((slope * direction).sum()) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "strides", "padding", "bend"),
    [
        ("lenet", (2, 2, 1), 2, torch.sigmoid),
        ("lenet7", (2, 2, 1, 1, 1, 1, 1), 2, torch.sigmoid),
        ("slim", (1, 2, 2), 1, torch.relu),
        ("lenet-relu", (2, 2, 1), 2, torch.relu),
    ],
)
def test_the_plain_networks_written_out(
    name: str, strides: tuple[int, ...], padding: int, bend: Callable[[Tensor], Tensor]
) -> None:
    values = list(params_of(small(name)).values())
    found = x = torch.randn(2, 3, 32, 32, generator=seeded())
    for layer, stride in enumerate(strides):
        weight, bias = values[2 * layer : 2 * layer + 2]
        found = bend(torch.nn.functional.conv2d(found, weight, bias, stride, padding))
    torch.testing.assert_close(small(name)(x), found.flatten(1) @ values[-2].T + values[-1])


@pytest.mark.parametrize(
    ("name", "pooled", "linear"), [("alexnet", (0, 1, 2), 2), ("vgg11", (5, 6, 7), 3)]
)
def test_the_stacks_of_convolutions_written_out(
    name: str, pooled: tuple[int, ...], linear: int
) -> None:
    values = list(params_of(small(name)).values())
    found = x = torch.randn(2, 3, 32, 32, generator=seeded())
    pairs = list(zip(values[::2], values[1::2], strict=True))
    for place, (weight, bias) in enumerate(pairs[:-linear]):
        found = torch.relu(torch.nn.functional.conv2d(found, weight, bias, padding=1))
        found = torch.nn.functional.max_pool2d(found, 2) if place in pooled else found
    found = found.flatten(1)
    for weight, bias in pairs[-linear:-1]:
        found = torch.relu(found @ weight.T + bias)
    torch.testing.assert_close(small(name)(x), found @ pairs[-1][0].T + pairs[-1][1])


def test_fcnet_is_nine_linear_layers_for_images_and_tables() -> None:
    found = x = torch.randn(2, 3, 4, 4, generator=seeded())
    model = fcnet(48, 5, generator=seeded())
    values = list(params_of(model).values())
    pairs = list(zip(values[::2], values[1::2], strict=True))
    assert [len(weight) for weight, _ in pairs] == [32] * 8 + [5]
    found = found.flatten(1)
    for weight, bias in pairs[:-1]:
        found = torch.relu(found @ weight.T + bias)
    torch.testing.assert_close(model(x), found @ pairs[-1][0].T + pairs[-1][1])
    torch.testing.assert_close(model(x.flatten(1)), model(x))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="network 'resnet21' is not known; did you mean 'resnet20"):
        small("resnet21")
    with pytest.raises(InputError, match="shortcut is 'padd'; did you mean 'pad'"):
        resnet20(3, 10, shortcut="padd", generator=seeded())
    with pytest.raises(InputError, match="side is 2"):
        build("slim", channels=3, classes=10, side=2, generator=seeded())
    with pytest.raises(InputError, match="side is 7; expected at least 8"):
        build("vgg11", channels=3, classes=10, side=7, generator=seeded())


def test_resnet50_has_the_names_of_torchvision() -> None:
    names = set(resnet50(1000, generator=seeded()).state_dict())
    assert len(names) == 320  # torchvision 0.28: 53 convolutions, 53 normalisations of 5, fc
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.1.weight"} <= names
    assert {"layer3.5.bn3.num_batches_tracked", "layer4.2.conv3.weight", "fc.bias"} <= names


# Weights from files.


def stored(path: Path, state: dict[str, Tensor]) -> Path:
    save_file({name: leaf.contiguous() for name, leaf in state.items()}, path)
    return path


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("pickled", [False, True])
def test_weights_come_back(tmp_path: Path, *, wrapped: bool, pickled: bool) -> None:
    model = small("resnet20", seed=1)
    state = {("module." if wrapped else "") + k: v for k, v in model.state_dict().items()}
    path = tmp_path / "weights"
    if pickled:
        torch.save({"state_dict": state, "epoch": 3} if wrapped else state, path)
    else:
        stored(path, state)
    fresh = small("resnet20")
    assert load_weights(fresh, path) is fresh
    assert digest(fresh) == digest(model)


class Runs:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("code was run",))


def test_a_pickle_that_needs_code_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": Runs()}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="hold a pickle that would run code") as refusal:
        read_state(tmp_path / "w.pt")
    torch.save(nn.Linear(2, 1), tmp_path / "m.pt")
    with pytest.raises(InputError, match="hold a pickle that would run code"):
        read_state(tmp_path / "m.pt")
    assert "\n" not in str(refusal.value)
    assert "code was run" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "content", [b"", b"weights\n", b"\x80\x02", b"PK\x03\x04 cut", bytes(100), b"a,b\n1,2\n"]
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"^weights .*w\.pt' (hold|cannot be read)[^\n]*$"):
        read_state(tmp_path / "w.pt")


def changed(name: str) -> dict[str, Tensor]:
    state = dict(nn.Linear(3, 2).state_dict())
    if name == "missing":
        del state["bias"]
    elif name == "unexpected":
        state["more"] = torch.zeros(1)
    elif name == "shape":
        state["weight"] = torch.zeros(2, 4)
    else:
        state["bias"] = torch.tensor([0.0, math.nan])
    return state


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("missing", "missing 'bias'"),
        ("unexpected", "unexpected 'more'"),
        ("shape", r"'weight' of other shapes \(\[2, 4\], expected \[2, 3\]\)"),
        ("nan", "'bias' is not finite"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, what: str, said: str) -> None:
    path = stored(tmp_path / "w.safetensors", changed(what))
    with pytest.raises(InputError, match=said):
        load_weights(nn.Linear(3, 2), path)


def test_no_file_and_no_state_dict(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_state(tmp_path / "none.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="hold no state dict"):
        read_state(tmp_path / "list.pt")


def test_a_layout_with_other_shortcuts_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "w.safetensors", small("resnet20-conv").state_dict())
    with pytest.raises(InputError, match=r"unexpected 'layer2\.0\.downsample.* and 9 more"):
        load_weights(small("resnet20"), path)


# Published networks, on real images.


def accuracy(model: nn.Module, pixels: np.ndarray, labels: np.ndarray, scale: str) -> float:
    mean, std = (torch.tensor(row).view(3, 1, 1) for row in SCALES[scale])
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255 - mean) / std
    with torch.no_grad():
        said = torch.cat([model(part).argmax(dim=1) for part in x.split(500)])
    return float((said.numpy() == labels).mean())


SCALES = {
    "cifar10": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar100": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
}


@pytest.mark.parametrize(
    ("network", "published"),
    [
        pytest.param(resnet20, 0.9173, id="20"),
        pytest.param(resnet56, 0.9339, id="56", marks=pytest.mark.slow),
    ],
)
def test_a_published_resnet_with_padded_shortcuts(
    data_folder: Path, network, published: float
) -> None:
    """The published accuracy is on all 10,000 test images; 1,000 keep to the bounds of 2,000."""
    path = data_folder / "weights" / f"cifar10_{network.__name__}_akamaster.safetensors"
    model = load_weights(network(3, 10, generator=seeded()).eval(), path)
    with np.load(data_folder / "cifar10" / "cifar10_subset.npz") as images:
        found = accuracy(model, images["x_test"][:1000], images["y_test"][:1000], "cifar10")
    assert found == pytest.approx(published, abs=2 * math.sqrt(published * (1 - published) / 2000))


def test_a_published_resnet20_with_convolved_shortcuts(data_folder: Path) -> None:
    """91.4 % on the images of unknown origin that are stored with it."""
    path = data_folder / "weights" / "cifar100_resnet20_chenyaofo.safetensors"
    model = build("resnet20-conv", channels=3, classes=100, side=32, generator=seeded())
    with np.load(data_folder / "cifar100" / "cifar100_600.npz") as images:
        own = images["source"] == 0
        found = accuracy(
            load_weights(model, path), images["x"][own], images["y_fine"][own], "cifar100"
        )
    assert found == pytest.approx(0.914, abs=1e-6)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.zeros(1, 2, device="meta"), "is on the device meta and has no values"),
        (torch.zeros(1, 2).to_sparse(), "is a torch.sparse_coo tensor; save it by to_dense()"),
        (torch.zeros(1, 2).to(torch.float8_e4m3fn), "is torch.float8_e4m3fn; save it as float32"),
    ],
)
def test_tensors_without_plain_numbers_are_refused(
    tmp_path: Path, value: torch.Tensor, says: str
) -> None:
    torch.save({"weight": value, "bias": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=re.escape(says)):
        load_weights(nn.Linear(2, 1), tmp_path / "w.pt")


def test_the_networks_of_membership_inference_have_their_published_sizes() -> None:
    generator = torch.Generator().manual_seed(0)
    dense, alex = (
        sum(
            leaf.numel()
            for leaf in build(
                name, channels=3, classes=10, side=32, generator=generator
            ).parameters()
        )
        for name in ("densenet", "alexnet-cifar")
    )
    assert round(dense / 1e6, 1) == 0.8  # Huang et al., Table 2
    assert round(alex / 1e6, 2) == 2.47  # of the public CIFAR models
    purchase = mlp(600, 100, (1024, 512, 256, 128), generator=generator)
    assert [leaf.shape[0] for leaf in purchase.parameters() if leaf.dim() == 2] == [
        1024, 512, 256, 128, 100,
    ]  # fmt: skip


def test_a_densenet_concatenates_what_its_layers_see() -> None:
    model = build(
        "densenet", channels=3, classes=10, side=32, generator=torch.Generator().manual_seed(0)
    )
    x = torch.randn(2, 3, 32, 32)
    first = model[0](x)
    assert torch.equal(model[1](first)[:, : first.shape[1]], first)
    widths = [part.in_features for part in model if isinstance(part, torch.nn.Linear)]
    assert widths == [342]  # as in the published DenseNet-BC (L=100, k=12)
