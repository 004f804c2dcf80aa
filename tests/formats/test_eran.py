"""ERAN text gives the functions it says, agrees with its ONNX twins, and comes back as it was written."""

import contextlib
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from exactline.errors import ExactlineError, FileError, NumberError, UnsupportedError
from exactline.formats import load
from exactline.formats.eran import read_eran
from exactline.formats.eran_writer import encode_eran
from exactline.network import Network
from exactline.network.capture import capture_module

ACTIVATIONS = {
    "ReLU": lambda x: np.maximum(x, 0),
    "relu": lambda x: np.maximum(x, 0),
    "Affine": lambda x: x,
    "HardTanh": lambda x: np.clip(x, -1, 1),
    "LeakyRelu": lambda x: np.where(x > 0, x, 0.2 * x),
}
DENSE = "ReLU\n[[1, -2], [0.5, 3]]\n[0.25, -1]\nAffine\n[[1, 1]]\n[0]\n"
CONV = "Conv2D\nReLU, filters=1, kernel_size=[1, 1], input_shape=[2, 2, 1], stride=[1, 1], padding=0\n[[[[2]]]]\n[0]\n"
POOL = "MaxPooling2D\npool_size=[2, 2], input_shape=[4, 4, 1]\n"


def read(text: str) -> Network:
    return read_eran(text.encode(), "a file")


def random(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def convolved(image, kernel, bias, stride, padding):
    """Channels last, by its definition: image (h, w, c), kernel (kh, kw, c, out)."""
    image = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    kh, kw = kernel.shape[:2]
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(image.shape, (kh, kw), stride, strict=False))
    out = np.empty((rows, columns, kernel.shape[3]))
    for i, j in np.ndindex(rows, columns):
        window = image[i * stride[0] : i * stride[0] + kh, j * stride[1] : j * stride[1] + kw]
        out[i, j] = np.tensordot(window, kernel, 3) + bias
    return out


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fully_connected_layers(name):
    (w, b), (v, c) = (random(4, 3), random(4)), (random(2, 4), random(2))
    network = read(f"{name}\n{w.tolist()}\n{b.tolist()}\n\nAffine\n{v.tolist()}\n{c.tolist()}")
    x = random(30, 3) * 3
    assert network.input_shape == (3,)
    hidden = ACTIVATIONS[name](x @ w.T + b)
    # at most 9 roundings of sums whose terms are no larger than these; relative to the result they may be anything
    size = (np.abs(x) @ np.abs(w.T) + np.abs(b) + 1) @ np.abs(v.T) + np.abs(c)
    error = np.abs(network(torch.tensor(x)).numpy() - (hidden @ v.T + c))
    assert (error <= 9 * np.finfo(np.float64).eps * size).all()


@pytest.mark.parametrize("channels_first", [True, False])
def test_convolutions_pools_and_the_order_of_columns(channels_first):
    kernel, bias, stride, padding = random(3, 2, 2, 5), random(5), (2, 1), 1
    weight, offset = random(3, 5 * 2 * 4), random(3)
    text = (
        "Normalize mean=[0.5, 0.25] std=[2, 4.0]\nConv2D\n"
        f"HardTanh, filters=5, kernel_size=[3, 2], input_shape=[7, 8, 2], stride=[2, 1], padding=1\n"
        f"{kernel.tolist()}\n{bias.tolist()}\n"
        f"MaxPooling2D\npool_size=[2, 3], input_shape=[4, 9, 5], stride=[2, 2], padding=0\n"
        f"ReLU\n{weight.tolist()}\n{offset.tolist()}\n"
    )
    network = read_eran(text.encode(), "a file", channels_first=channels_first)
    assert network.input_shape == (2, 7, 8)
    x = random(7, 8, 2)
    y = np.clip(convolved((x - [0.5, 0.25]) / [2, 4], kernel, bias, stride, padding), -1, 1)
    pooled = np.empty((2, 4, 5))
    for i, j in np.ndindex(2, 4):
        pooled[i, j] = y[2 * i : 2 * i + 2, 2 * j : 2 * j + 3].max((0, 1))
    flat = (pooled.transpose(2, 0, 1) if channels_first else pooled).reshape(-1)
    found = network(torch.tensor(x.transpose(2, 0, 1))[None])
    np.testing.assert_allclose(found[0], np.maximum(weight @ flat + offset, 0), rtol=0, atol=1e-12)


def test_flat_points_become_images_channels_last():
    kernel = random(1, 1, 2, 3)
    text = f"Affine\n{np.eye(8).tolist()}\n{[0] * 8}\nConv2D\nAffine, input_shape=[2, 2, 2]\n{kernel.tolist()}\n[0,0,0]"
    x = random(8)
    expected = convolved(x.reshape(2, 2, 2), kernel, 0, (1, 1), 0)
    np.testing.assert_allclose(read(text)(torch.tensor(x)[None])[0], expected.transpose(2, 0, 1), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("count", "each"), [(1, 6), (2, 3), (6, 1)])
def test_normalize_of_flat_points_goes_channel_by_channel(count, each):
    mean, std = random(count), np.arange(1.0, count + 1)
    text = f"Normalize mean={mean.tolist()} std={std.tolist()}\nAffine\n{np.eye(6).tolist()}\n{[0] * 6}\n"
    x = random(6)
    expected = (x - mean.repeat(each)) / std.repeat(each)
    size = (np.abs(x) + np.abs(mean.repeat(each))) / std.repeat(each)  # of the terms, which may cancel
    error = np.abs(read(text)(torch.tensor(x)[None])[0].numpy() - expected)
    assert (error <= 4 * np.finfo(np.float64).eps * size).all()


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("", FileError, 0),
        ("Normalize mean=[1] std=[0]\n" + DENSE, FileError, 1),
        (DENSE + "Normalize mean=[1] std=[1]\n", FileError, 7),
        (DENSE.replace("-2]", "nan]"), NumberError, 2),
        (DENSE.replace("-2]", "-inf]"), NumberError, 2),
        (DENSE.replace("-2]", "1e999]"), NumberError, 2),
        (DENSE.replace("-2]", "0x2]"), FileError, 2),
        (DENSE.replace("-2]", "1_0]"), FileError, 2),
        (DENSE.replace("-2]", "1 2]"), FileError, 2),
        (DENSE.replace("-2]", "__import__('os')]"), FileError, 2),
        (DENSE.replace("-2]", "-2, 3]"), FileError, 2),  # rows of two lengths
        (DENSE.replace("-2]", "-2"), FileError, 2),
        (DENSE.replace("[[1, -2]", "[1[ , -2]"), FileError, 2),
        (DENSE.replace("3]]", "3]]]"), FileError, 2),
        (DENSE.replace("3]]", "3]],"), FileError, 2),
        (DENSE.replace("[[1, 1]]", "[[1, 1, 1]]"), FileError, 6),  # too many columns
        (DENSE.replace("[0.25, -1]", "[0.25]"), FileError, 3),
        (DENSE.replace("[[1, -2]", "[" * 40), FileError, 2),
        ("ReLU\n[[1, 2]]\n", FileError, 2),
        ("Gru\n[[1]]\n[1]\n", FileError, 1),
        (CONV.replace("stride=[1, 1]", "stride=[0, 1]"), FileError, 2),
        (CONV.replace("padding=0", "padding=SAME"), FileError, 2),
        (CONV.replace("kernel_size=[1, 1]", "kernel_size=[2, 1]"), FileError, 4),
        (CONV.replace("[2, 2, 1]", "[99999, 99999, 99]"), FileError, None),
        (CONV + CONV.replace("[2, 2, 1]", "[3, 3, 1]"), FileError, 8),
        (POOL.replace("[2, 2]", "[9, 9]"), FileError, 2),
        (POOL.replace("pool_size=[2, 2], ", ""), FileError, 2),
        (DENSE.replace("ReLU", "SkipNet1"), UnsupportedError, 1),
        (DENSE.replace("ReLU", "Sign"), UnsupportedError, None),
        (DENSE.replace("ReLU", "Tanh"), UnsupportedError, None),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, kind, line):
    with pytest.raises(kind, match="a file" if line is None else rf"a file, line {line}\b") as caught:
        read(text)
    assert caught.value.hint


def test_a_smooth_last_layer_is_kept_as_a_tail():
    network = read(DENSE.replace("Affine", "Sigmoid"))
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    assert torch.equal(network(x, tail=True), torch.sigmoid(network(x)))
    assert encode_eran(network).count(b"Sigmoid") == 1


def test_damaged_bytes_never_give_another_kind_of_error():
    text = bytearray(("Normalize mean=[1] std=[2]\n" + CONV + DENSE.replace("-2]", "-2, 1, 1]")).encode())
    rng = np.random.default_rng(3)
    for _ in range(500):
        damaged = text.copy()
        for place in rng.integers(0, len(text), size=2):
            damaged[place] = rng.choice(np.frombuffer(b"[],.0e-=\n ReLU1", np.uint8))
        with contextlib.suppress(ExactlineError):
            read_eran(bytes(damaged), "a file")


def graph(module: nn.Module, shape) -> Network:
    return capture_module(module.double().eval(), [torch.zeros(shape)])


class Permute(nn.Module):
    """Dims in another order."""

    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)


class Mixed(nn.Module):
    """Something of all that can be written."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Buffer(torch.tensor([0.1, 0.2]).view(2, 1, 1))
        self.layers = nn.Sequential(
            *(nn.Conv2d(2, 3, 3, stride=(2, 1), padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(3, 4, 2, bias=False), nn.MaxPool2d(3, 1, 1), nn.Hardtanh(), nn.ReLU(), nn.Flatten()),
            *(nn.LeakyReLU(0.2), nn.Linear(32, 5), nn.ReLU(), nn.Linear(5, 4, bias=False)),
        )
        self.layers[1].running_mean.normal_()
        self.layers[1].running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.layers((x - self.mean) / 0.3)


def test_what_is_written_reads_back_as_the_same_function():
    network = graph(Mixed(), (2, 12, 10))
    again = read(encode_eran(network).decode())
    x = torch.randn(20, 2, 12, 10, dtype=torch.float64)
    torch.testing.assert_close(again(x), network(x), rtol=1e-13, atol=1e-13)
    assert (again.input_shape, again.output_shape) == (network.input_shape, network.output_shape)
    assert encode_eran(again) == encode_eran(read(encode_eran(again).decode()))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.ReLU(), (3,)),
        (nn.MaxPool2d(3, 2, 1), (2, 7, 9)),
        (nn.MaxPool2d((1, 2), (3, 2)), (1, 8, 5)),
        (nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten()), (1, 3, 3)),
        (nn.Sequential(nn.Linear(3, 2), nn.Hardtanh(), nn.Hardtanh()), (3,)),
        (nn.Sequential(nn.MaxPool2d(2), Permute(0, 2, 3, 1), nn.ReLU(), nn.Flatten()), (3, 4, 6)),
    ],
)
def test_odd_chains_read_back_bit_by_bit(module, shape):
    network = graph(module, shape)
    again = read(encode_eran(network).decode())
    x = torch.randn(20, *shape, dtype=torch.float64)
    assert torch.equal(again(x), network(x))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.ReLU6()), (3,)),
        (nn.Conv2d(2, 2, 3, dilation=2), (2, 9, 9)),
        (nn.Conv2d(2, 2, 3, padding=(1, 0)), (2, 9, 9)),
        (nn.Conv2d(2, 2, 2, padding="same"), (2, 9, 9)),
        (nn.AvgPool2d(2), (1, 4, 4)),
        (nn.Linear(3, 3), (2, 3)),
        (nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1)), (3,)),
        (nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (1, 2, 2))), (4,)),
        (nn.Sequential(nn.Conv2d(2, 2, 1), Permute(0, 2, 3, 1)), (2, 3, 3)),
        (nn.Sequential(Permute(0, 3, 1, 2), nn.MaxPool2d(2)), (4, 4, 2)),
        (nn.Sequential(nn.ReflectionPad2d(1), nn.Flatten(), nn.Linear(16, 2)), (1, 2, 2)),
    ],
)
@pytest.mark.every(3)
def test_what_does_not_fit_is_named(module, shape):
    with pytest.raises(UnsupportedError, match=r"\.onnx") as caught:
        encode_eran(graph(module, shape))
    assert caught.value.nodes


# the published networks


def mnist(data: Path, count: int):
    images = gzip.decompress((data / "images/t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data / "images/t10k-labels-idx1-ubyte.gz").read_bytes())
    found = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)[:count] / 255
    return found, np.frombuffer(labels, np.uint8, offset=8)[:count]


def cifar(data: Path, count: int):
    with np.load(data / "images/cifar10_test_first1000.npz") as stored:
        return stored["images"][:count].transpose(0, 3, 1, 2) / 255, stored["labels"][:count]


TWINS = [  # folder, name, percent right of 100 and of 1000 images, mean and std that the twin takes outside
    ("mnist", "convSmallRELU__Point", 100, 98.0, 0.1307, 0.3081),
    ("mnist", "convSmallRELU__PGDK", 100, 98.7, 0.1307, 0.3081),
    ("cifar10", "convSmallRELU__Point", 59, 63.3, 0.0, 1.0),
]


def right(network, images, labels):
    return 100 * float((network(torch.tensor(images)).argmax(1).numpy() == labels).mean())


@pytest.mark.parametrize(("folder", "name", "percent", "_", "mean", "std"), TWINS)
def test_convolutions_agree_with_their_twins(data: Path, folder, name, percent, _, mean, std):
    images, labels = (mnist if folder == "mnist" else cifar)(data, 100)
    network = load(data / "eran/pyt_generated" / folder / f"{name}.pyt.gz")
    assert right(network, images, labels) == percent
    agrees(network, images[:20], (images[:20] - mean) / std, data / "eran" / folder / f"{name}.onnx")


def agrees(network, images, theirs, file):
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(file, options)
    name = session.get_inputs()[0].name
    out = np.concatenate([session.run(None, {name: x[None].astype(np.float32)})[0] for x in theirs])
    assert np.abs(network(torch.tensor(images)).numpy() - out).max() <= 1e-5 * np.abs(out).max()


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "name", "_", "percent", "mean", "std"), TWINS)
def test_a_thousand_images_are_as_right_as_published(data: Path, folder, name, _, percent, mean, std):
    images, labels = (mnist if folder == "mnist" else cifar)(data, 1000)
    network = load(data / "eran/pyt_generated" / folder / f"{name}.pyt.gz")
    assert right(network, images, labels) == pytest.approx(percent)


def test_flat_networks_load_and_agree(data: Path):
    images, labels = mnist(data, 100)
    network = load(data / "eran/deeppac/mnist_FNN_1.pyt")
    assert network.input_shape == (784,)
    assert right(network, images.reshape(-1, 784), labels) == 99
    agrees(
        network, images[:20].reshape(-1, 784), (images[:20] - 0.1307) / 0.3081, data / "eran/deeppac/mnist_FNN_1.onnx"
    )
    assert load(data / "acasxu/eran_specs/acasxu_prop9_net.tf").units == {"relu": 305}
    assert load(data / "other/syrenn_vrl/quadcopter.eran").units == {"relu": 440, "hardtanh": 1}


def test_published_weights_come_back_bit_by_bit(data: Path):
    network = load(data / "eran/pyt_generated/mnist/convSmallRELU__Point.pyt.gz")
    again = read_eran(encode_eran(network), "a file")
    assert again.checksum() == network.checksum()


@pytest.mark.parametrize("name", ["convSmallRELU__PGDK", "mnist_conv_maxpool", "mnist_relu_3_50"])
def test_columns_that_read_channels_last_are_written_in_our_order(data: Path, name):
    network = load(data / f"eran/mnist/{name}.onnx")
    again = read_eran(encode_eran(network), "a file")
    x = torch.tensor(mnist(data, 20)[0])
    torch.testing.assert_close(again(x.reshape(20, *again.input_shape)), network(x), rtol=1e-12, atol=1e-12)
