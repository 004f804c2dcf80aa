"""Curves of a server are those of the library, bit for bit."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import get_type_hints

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.errors import ArgumentError, LineError, UnsupportedError
from exactline.rpc.client import keywords
from exactline.rpc.client.aio import AsyncClient
from exactline.rpc.client.sync import Client
from exactline.smooth.api import ApproximateKeywords
from exactline.smooth.storage import ARRAYS, FACTS
from tests.rpc.onnx_files import networks
from tests.rpc.server_process import start_server


class Gated(nn.Module):
    """Two outputs and two inputs, with a product of branches."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gate = torch.sigmoid(self.two(y))
        return torch.relu(self.one(x)) * gate, gate


def write_onnx(module: nn.Module, shapes: list[tuple[int, ...]], path: Path) -> None:
    points = tuple(torch.zeros(1, *shape) for shape in shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), points, str(path), dynamo=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("smooth")
    torch.manual_seed(0)
    write_onnx(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()), [(3,)], found / "tail.onnx")
    write_onnx(nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 4)), [(3,)], found / "smooth.onnx")
    write_onnx(Gated(), [(3,), (2,)], found / "gated.onnx")
    plain, shapes = networks()["plain"]
    write_onnx(plain, shapes, found / "plain.onnx")
    return found


@pytest.fixture(scope="module")
def server(folder):
    with start_server(models=folder, allow_upload=True, workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def client(server):
    with Client(server.address) as found:
        yield found


def random_line(network):
    generator = torch.Generator().manual_seed(3)
    shapes = network.input_shape if network.several_inputs else [network.input_shape]
    sides = [tuple(torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes) for _ in range(2)]
    return sides if network.several_inputs else [side[0] for side in sides]


def assert_same_curve(found: xl.Approximation, expected: xl.Approximation) -> None:
    for name in ARRAYS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for name in {*FACTS, "output_shapes", "output_names"} - {"seconds"}:
        assert getattr(found, name) == getattr(expected, name), name
    for side in ("starts", "ends"):
        for a, b in zip(getattr(found.lines, side), getattr(expected.lines, side), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("smooth", {}),
        ("smooth", {"tol": 1e-4}),
        ("tail", {"tol": 1e-10}),
        ("plain", {}),
        ("gated", {}),
        ("gated", {"output": 1}),
        ("gated", {"max_evaluations": None, "memory": 1 << 20, "seconds": 60.0}),
    ],
    ids=str,
)
def test_curves_are_those_of_the_library(client, folder, name, options):
    network = xl.load(folder / f"{name}.onnx")
    start, end = random_line(network)
    expected = xl.approximate(network, start, end, **options)
    found = client.approximate(name, start, end, **options)
    assert_same_curve(found, expected)
    assert found.status == ("exact" if name == "plain" else "estimated")


def test_an_output_can_be_named(client, folder):
    network = xl.load(folder / "gated.onnx")
    start, end = random_line(network)
    name = network.output_names[1]
    assert_same_curve(
        client.approximate("gated", start, end, output=name), xl.approximate(network, start, end, output=name)
    )


def test_a_missed_tolerance_is_announced_by_the_client(client, folder):
    start, end = random_line(xl.load(folder / "smooth.onnx"))
    with pytest.warns(xl.ToleranceWarning, match="rounding errors do not permit more"):
        curve = client.approximate("smooth", start, end, tol=1e-30)
    assert 1e-30 < curve.error < 1e-12
    with pytest.warns(xl.ToleranceWarning, match="max_evaluations was reached"):
        assert client.approximate("smooth", start, end, tol=1e-12, max_evaluations=1).stopped == "max_evaluations"


def test_progress_reaches_the_client(client, folder):
    start, end = random_line(xl.load(folder / "smooth.onnx"))
    shares: list[float] = []
    client.approximate("smooth", start, end, progress=lambda share, pieces: shares.append(share))
    assert shares
    assert shares[-1] == 1.0


def test_a_smooth_model_can_be_described_and_uploaded(client, folder):
    network = xl.load(folder / "smooth.onnx")
    described = client.describe("smooth")
    assert described.input_shape == network.input_shape
    assert described.weights == 3 * 8 + 8 + 8 * 4 + 4
    assert "smooth" in [layer.kind for layer in described.layers]
    uploaded = client.upload(folder / "smooth.onnx")
    start, end = random_line(network)
    assert_same_curve(client.approximate(uploaded, start, end), xl.approximate(network, start, end))


@pytest.mark.parametrize(
    ("ask", "kind", "word"),
    [
        (lambda c: c.restrict("smooth", torch.zeros(3), torch.ones(3)), UnsupportedError, "piecewise linear"),
        (lambda c: c.approximate("smooth", torch.zeros(2), torch.ones(2)), LineError, r"\(3,\)"),
        (lambda c: c.approximate("smooth", torch.zeros(3), torch.ones(3), tol=0), ArgumentError, "tol"),
        (lambda c: c.approximate("smooth", torch.zeros(3), torch.ones(3), output=-1), ArgumentError, "option"),
        (lambda c: c.approximate("smooth", torch.zeros(3), torch.ones(3), device="cpu"), ArgumentError, "device"),
        (lambda c: c.approximate("gated", *[(torch.zeros(3), torch.ones(2))] * 2, output=7), ArgumentError, "output"),
    ],
)
def test_errors_keep_their_types(client, ask, kind, word):
    with pytest.raises(kind, match=word):
        ask(client)


def test_the_async_client_gives_the_same_curve(server, folder):
    start, end = random_line(xl.load(folder / "smooth.onnx"))

    async def ask():
        async with AsyncClient(server.address) as client:
            return await client.approximate("smooth", start, end)

    assert_same_curve(asyncio.run(ask()), xl.approximate(xl.load(folder / "smooth.onnx"), start, end))


def test_the_client_takes_the_options_of_the_library_but_for_device():
    known = {name: hint for name, hint in get_type_hints(ApproximateKeywords).items() if name != "device"}
    assert get_type_hints(keywords.RemoteApproximateKeywords) == known
