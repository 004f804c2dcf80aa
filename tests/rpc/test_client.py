"""The results of the clients are those of the library, bit for bit; errors keep their types."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
from dataclasses import replace
from typing import get_type_hints

import pytest
import torch

import exactline as xl
from exactline import options
from exactline.attr import IntegratedGradients
from exactline.errors import ArgumentError, FileError, LimitError, LineError, MissingError, PlaneError, ServiceError
from exactline.network import Network
from exactline.rpc.client import keywords
from exactline.rpc.client.aio import AsyncClient
from exactline.rpc.client.models import RemoteModel
from exactline.rpc.client.sync import Client
from exactline.zoo import digits_images
from tests.rpc.onnx_files import networks, write_onnx_files
from tests.rpc.same import assert_same_line, assert_same_lines, assert_same_plane, assert_same_table, assert_same_tensor
from tests.rpc.server_process import ServerProcess, start_server
from tests.test_package import run_without_optional_packages

NAMES = list(networks())
SINGLE = [name for name in NAMES if name != "pair"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_onnx_files(tmp_path_factory.mktemp("networks"))


@pytest.fixture(scope="module")
def server(folder):
    with start_server(models=folder, allow_upload=True, workers=1) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: ServerProcess):
    with Client(server.address) as found:
        yield found


@pytest.fixture
def network(folder):
    return lambda name: xl.load(folder / f"{name}.onnx")


def random_lines(network: Network, count: int, seed: int = 0):
    """Draw the starts and ends of random lines, as the network takes them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [network.nodes[i].shape for i in network.inputs]
    sides = [
        tuple(torch.randn(count, *shape, generator=generator, dtype=torch.float64) for shape in shapes)
        for _ in range(2)
    ]
    return sides if network.several_inputs else [side[0] for side in sides]


def first_point(side):
    return tuple(t[0] for t in side) if isinstance(side, tuple) else side[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.every(9)
def test_one_line_is_that_of_the_library(client, network, name):
    net = network(name)
    start, end = map(first_point, random_lines(net, 1))
    assert_same_line(client.restrict(name, start, end), xl.restrict(net, start, end))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.every(7)
def test_many_lines_are_those_of_the_library(client, network, name):
    net = network(name)
    starts, ends = random_lines(net, 7)
    assert_same_lines(client.restrict_many(name, starts, ends), xl.restrict_many(net, starts, ends))


@pytest.mark.parametrize(
    "options",
    [
        {"values": False},
        {"dtype": torch.float32},
        {"memory": 1},
        {"memory": 20_000},
        {"max_breaks": 40},
        {"max_breaks": 1},
        {"rewrite": False},
        {"seconds": 60.0},
        {"seconds": 0.0},
    ],
    ids=str,
)
def test_options_have_the_effect_they_have_in_the_library(client, network, options):
    net = network("plain")
    starts, ends = random_lines(net, 5, seed=1)
    assert_same_lines(
        client.restrict_many("plain", starts, ends, **options), xl.restrict_many(net, starts, ends, **options)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.every(6)
def test_both_engines_can_be_chosen(client, network, engine, dtype):
    net = network("digits")
    starts, ends = random_lines(net, 2, seed=1)
    options = {"engine": engine, "dtype": dtype}
    found = client.restrict_many("digits", starts, ends, **options)
    assert found.engine.startswith(engine)
    assert_same_lines(found, xl.restrict_many(net, starts, ends, **options))
    ours, theirs = (
        list(sweep(m, starts[0], ends[0], **options)) for sweep, m in ((client.sweep, "digits"), (xl.sweep, net))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert_same_line(a, b, error=False)


def test_lines_through_a_point_where_all_units_tie(client, network):
    net = network("through")
    x = torch.randn(3, 4, dtype=torch.float64)
    for memory in (None, 1):
        found = client.restrict_many("through", -x, 2 * x, memory=memory)
        assert_same_lines(found, xl.restrict_many(net, -x, 2 * x, memory=memory))
        assert [len(line) for line in found] == [2, 2, 2]


def test_a_call_without_lines(client, network):
    empty = torch.zeros(0, 4)
    assert_same_lines(client.restrict_many("plain", empty, empty), xl.restrict_many(network("plain"), empty, empty))


@pytest.mark.parametrize(
    "options", [{}, {"memory": 1}, {"memory": 2000}, {"seconds": 30.0}, {"values": False}], ids=str
)
@pytest.mark.every(3)
def test_a_sweep_has_the_parts_of_the_library(client, network, options):
    ours = list(client.sweep("tent6", [0.0], [1.0], **options))
    theirs = list(xl.sweep(network("tent6"), [0.0], [1.0], **options))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert_same_line(a, b, error=False)
        assert a.error > 0  # of the whole line, not of the part


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("options", [{}, {"order": "min"}, {"top": 2}], ids=str)
@pytest.mark.every(8)
def test_decisions_are_those_of_the_library(client, network, name, options):
    net = network(name)
    starts, ends = random_lines(net, 4, seed=2)
    if name == "tent6":  # it has one output, and the protocol has no threshold
        with pytest.raises(ArgumentError, match="no rival"):
            client.decide(name, starts[0], ends[0], **options)
        return
    one = client.decide(name, starts[0], ends[0], **options)
    theirs = xl.restrict(net, starts[0], ends[0]).decisions(**options)
    assert_same_table(one.table, theirs.table)
    assert_same_line(one.line, theirs.line)
    assert str(one) == str(theirs)
    many, lines = client.decide_many(name, starts, ends, **options), xl.restrict_many(net, starts, ends)
    assert_same_table(many.table, lines.decisions(**options).table)
    assert_same_lines(many.lines, lines)


def test_decisions_of_one_of_several_outputs(client, network):
    starts, ends = random_lines(network("pair"), 3)
    theirs = xl.restrict_many(network("pair"), starts, ends).decisions(output=1)
    ours = client.decide_many("pair", starts, ends, output=1)
    assert_same_table(ours.table, theirs.table)
    assert ours.output == theirs.output == 1
    with pytest.raises(ArgumentError, match="2 outputs"):
        client.decide_many("pair", starts, ends)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["plain", "soft", "digits"])
@pytest.mark.every(6)
def test_attributions_are_those_of_the_library(client, network, name, dtype):
    net = network(name)
    starts, ends = (side.to(dtype) for side in random_lines(net, 3, seed=3))
    method = IntegratedGradients(net)
    theirs, delta = method.attribute(ends, starts, target=[0, 2, 1], return_convergence_delta=True)
    ours, ours_delta, report = client.attribute(
        name, ends, starts, target=[0, 2, 1], return_convergence_delta=True, return_report=True
    )
    assert_same_tensor(ours, theirs)
    assert_same_tensor(ours_delta, delta)
    assert method.report is not None
    assert (report.pieces, report.ambiguous) == (method.report.pieces, method.report.ambiguous)
    assert_same_tensor(report.subgradient_range, method.report.subgradient_range)
    assert_same_tensor(client.attribute(name, ends, 0.5, target=1), method.attribute(ends, 0.5, target=1))
    bare = IntegratedGradients(net, multiply_by_inputs=False)
    assert_same_tensor(client.attribute(name, ends, target=1, multiply_by_inputs=False), bare.attribute(ends, target=1))


@pytest.mark.parametrize("name", ["plain", "soft", "loan"])
def test_planes_are_those_of_the_library(client, network, name):
    net = network(name)
    corners = random_lines(net, 3, seed=4)[0]
    assert_same_plane(client.plane(name, corners), xl.restrict_plane(net, corners))
    assert_same_plane(client.plane(name, corners, values=False), xl.restrict_plane(net, corners, values=False))


def test_planes_of_two_inputs_and_grids(client, network):
    corners = random_lines(network("pair"), 3, seed=4)[0]
    assert_same_plane(client.plane("pair", corners), xl.restrict_plane(network("pair"), corners))
    base = digits_images()[0][3]
    options = {"axes": ((0, 3, 3), -1), "box": ((0.5, 0.51), (0.1, 0.11))}
    assert_same_plane(client.grid("digits", base, **options), xl.grid(network("digits"), base, **options))


def test_the_limits_of_a_plane_are_the_callers(client, network):
    corners = random_lines(network("plain"), 3, seed=4)[0]
    count = len(xl.restrict_plane(network("plain"), corners))
    assert count > 2
    assert len(client.plane("plain", corners, max_polygons=count, seconds=600.0)) == count
    with pytest.raises(LimitError, match=f"more than {count - 1:,} polygons") as caught:
        client.plane("plain", corners, max_polygons=count - 1)
    assert (caught.value.where, caught.value.reached) == ("argument max_polygons", count)
    with pytest.raises(LimitError, match="not finished after 0 seconds") as caught:
        client.grid("digits", digits_images()[0][3], axes=((0, 3, 3), -1), box=((0.5, 0.51), (0.1, 0.11)), seconds=0.0)
    assert caught.value.where == "argument seconds"
    for wrong in ({"max_polygons": 0}, {"seconds": -1.0}):
        with pytest.raises(ArgumentError):
            client.plane("plain", corners, **wrong)


def test_methods_that_need_no_network_work(client, network, tmp_path):
    net = network("plain")
    starts, ends = random_lines(net, 2)
    ours, theirs = client.restrict("plain", starts[0], ends[0]), xl.restrict(net, starts[0], ends[0])
    assert_same_tensor(ours.at([0.1, 0.7]), theirs.at([0.1, 0.7]))
    assert_same_tensor(ours.points, theirs.points)
    alike = replace(theirs, seconds=ours.seconds)  # which the text shows
    assert str(ours).split(", ")[:2] == str(alike).split(", ")[:2]
    assert ours.decisions().labels == theirs.decisions().labels
    ours.save(tmp_path / "line.safetensors")
    again = xl.Restriction.load(tmp_path / "line.safetensors", net)
    assert again.certify(pieces=2).complete
    many = client.restrict_many("plain", starts, ends)
    assert repr(many).startswith("<Restrictions: 2 lines")
    assert_same_tensor(many.values, xl.restrict_many(net, starts, ends).values)


def test_methods_that_need_the_network_say_so_and_accept_one(client, network):
    net = network("plain")
    starts, ends = random_lines(net, 2)
    ours, theirs = client.restrict("plain", starts[0], ends[0]), xl.restrict(net, starts[0], ends[0])
    many = client.restrict_many("plain", starts, ends)
    for ask in (lambda: ours.piece(0), ours.minimal, ours.check, many.decisions, lambda: many.network(starts)):
        with pytest.raises(MissingError, match="network"):
            ask()
    (a, b), (c, d) = ours.with_network(net).piece(1).affine(), theirs.piece(1).affine()
    assert_same_tensor(a, c)
    assert_same_tensor(b, d)
    assert_same_table(many.with_network(net).decisions().table, xl.restrict_many(net, starts, ends).decisions().table)


def test_a_line_from_the_server_is_certified_with_its_values(client, network):
    net = network("plain")
    starts, ends = random_lines(net, 1)
    line = client.restrict("plain", starts[0], ends[0]).with_network(net)
    proof = line.certify(4)
    assert proof.complete
    assert proof.covers_values
    moved = replace(line, stored_values=tuple(v + 1e-6 * v.abs().max() for v in line.stored_values))
    assert moved.certify(4).values_proved == 0


def test_progress_is_reported(client):
    reports = []
    client.restrict("tent6", [0.0], [1.0], memory=2000, progress=lambda share, breaks: reports.append((share, breaks)))
    assert reports[-1] == (1.0, 65)
    assert reports == sorted(reports)
    client.plane("plain", torch.randn(3, 4), progress=lambda share, count: reports.append((share, count)))
    assert reports[-1][0] == pytest.approx(1.0)


def test_models_are_listed_and_described(client, network, folder):
    entries = {entry.name: entry for entry in client.models() if not entry.uploaded}
    assert sorted(entries) == sorted(NAMES)
    data = (folder / "digits.onnx").read_bytes()
    assert entries["digits"].sha256 == hashlib.sha256(data).hexdigest()
    assert entries["digits"].bytes == len(data)
    net = network("pair")
    found = client.describe("pair")
    assert (found.input_shape, found.output_shape) == (net.input_shape, net.output_shape)
    assert found.units == net.units
    assert found.checksum == net.checksum()
    assert [layer.name for layer in found.layers][: len(net.nodes)] == [node.name for node in net.nodes]
    for name in (found, f"sha256:{found.sha256}", "pair.onnx", entries["pair"]):
        assert client.describe(name).sha256 == found.sha256


def test_an_uploaded_model_is_named_by_its_digest(client, tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU()).eval()
    path = tmp_path / "mine.onnx"
    xl.network.as_network(module, [torch.zeros(2)]).save(path)
    mine = client.upload(path)
    assert mine.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert_same_line(
        client.restrict(mine, [-1.0, 0.0], [1.0, 2.0]), xl.restrict(xl.load(path), [-1.0, 0.0], [1.0, 2.0])
    )
    assert client.upload(path.read_bytes()) == mine
    assert [entry.sha256 for entry in client.models() if entry.uploaded] == [mine.sha256]
    with pytest.raises(FileError, match="not an ONNX file"):
        client.upload(b"nothing of the kind")
    assert client.stats().uploads == 1


@pytest.mark.parametrize(
    ("ask", "kind", "word"),
    [
        (lambda c: c.restrict("nowhere", [0.0], [1.0]), MissingError, "no model 'nowhere'"),
        (lambda c: c.restrict("../loan", [0.0], [1.0]), MissingError, "no model"),
        (lambda c: c.restrict("sha256:" + 64 * "0", [0.0], [1.0]), MissingError, "no model"),
        (lambda c: c.restrict("loan", [0.0], [1.0]), LineError, r"takes points of shape \(2,\)"),
        (lambda c: c.restrict("loan", [0.0, float("nan")], [1.0, 1.0]), LineError, "NaN"),
        (lambda c: c.restrict("loan", [0.0, 0.0], [1.0, 1.0], until="relu"), ArgumentError, "until"),
        (lambda c: c.restrict("loan", [0.0, 0.0], [1.0, 1.0], max_breaks=0), ArgumentError, "max_breaks"),
        (lambda c: c.restrict("loan", [0.0, 0.0], [1.0, 1.0], memory="much"), ArgumentError, "memory"),
        (lambda c: c.restrict("loan", [0.0, 0.0], [1.0, 1.0], dtype=torch.float16), ArgumentError, "dtype"),
        (lambda c: c.restrict("loan", [0.0, 0.0], [1.0, 1.0], progress=3), ArgumentError, "progress"),
        (lambda c: c.restrict(torch.nn.ReLU(), [0.0], [1.0]), ArgumentError, "named by a string"),
        (lambda c: c.decide("loan", [0.0, 0.0], [1.0, 1.0], order="most"), ArgumentError, "order"),
        (lambda c: c.decide("loan", [0.0, 0.0], [1.0, 1.0], top=9), ArgumentError, "top is 9"),
        (lambda c: c.attribute("loan", torch.ones(1, 2)), ArgumentError, "A target is missing"),
        (lambda c: c.attribute("loan", torch.ones(1, 2), target=7), ArgumentError, "out of range"),
        (lambda c: c.plane("loan", [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), PlaneError, "on one line"),
        (lambda c: c.grid("loan", [0.0, 0.0], axes=(0, 5)), PlaneError, "not a position"),
        (lambda c: c.grid("loan", [0.0, 0.0], box=((1, 0), (0, 1))), PlaneError, "not a range"),
    ],
)
def test_errors_keep_their_types_and_parts(client, ask, kind, word):
    with pytest.raises(kind, match=word) as caught:
        ask(client)
    assert caught.value.hint
    assert "Traceback" not in str(caught.value)


def test_the_clients_take_the_options_of_the_library_but_for_device_output_and_record():
    for ours, theirs in (
        (keywords.RemotePlaneKeywords, options.PlaneKeywords),
        (keywords.RemoteSweepKeywords, options.SweepKeywords),
        (keywords.RemoteRestrictKeywords, options.RestrictKeywords),
    ):
        known = {n: hint for n, hint in get_type_hints(theirs).items() if n not in ("device", "output", "record")}
        found = get_type_hints(ours)
        assert found.pop("errors", bool) is bool  # which the library always computes when they are needed
        assert found == known


def test_errors_are_asked_for_when_they_are_needed(client, network):
    net = network("plain")
    starts, ends = random_lines(net, 5, seed=3)
    many = client.restrict_many("plain", starts, ends)
    assert many.breaks.errors is None
    calls = client.stats().calls["Restrict OK"]
    asked = client.restrict_many("plain", starts, ends, errors=True)
    assert_same_tensor(many.errors, asked.errors)
    assert_same_tensor(many[3].errors, asked[3].errors)
    assert client.stats().calls["Restrict OK"] == calls + 2
    copy = pickle.loads(pickle.dumps(client.restrict("plain", starts[0], ends[0])))
    with pytest.raises(MissingError, match="not asked for"):
        copy.error_at(0.5)
    decided = client.decide("plain", starts[0], ends[0])
    assert decided.line.error == client.decide("plain", starts[0], ends[0], errors=True).line.error > 0
    for option in ({"device": "cpu"}, {"output": 1}):
        with pytest.raises(ArgumentError, match=f"no option '{next(iter(option))}'"):
            Client("127.0.0.1:9").restrict("loan", [0.0, 0.0], [1.0, 1.0], **option)


def test_a_model_with_options(client):
    with pytest.raises(LineError, match=r"\(2,\)"):
        client.restrict(RemoteModel("loan", shape=(2,)), [0.0], [1.0])


def test_the_async_client_gives_the_same_results(server, network):
    async def ask():
        net = network("plain")
        starts, ends = random_lines(net, 3)
        async with AsyncClient(server.address) as client:
            assert await client.health()
            one, many, decided, plane = await asyncio.gather(
                client.restrict("plain", starts[0], ends[0]),
                client.restrict_many("plain", starts, ends),
                client.decide("plain", starts[0], ends[0]),
                client.plane("plain", starts),
            )
            assert_same_line(one, xl.restrict(net, starts[0], ends[0]))
            assert_same_lines(many, xl.restrict_many(net, starts, ends))
            assert_same_table(decided.table, xl.restrict(net, starts[0], ends[0]).decisions().table)
            assert_same_plane(plane, xl.restrict_plane(net, starts))
            assert_same_tensor(
                await client.attribute("plain", ends, target=1), IntegratedGradients(net).attribute(ends, target=1)
            )
            parts = [part async for part in client.sweep("tent6", [0.0], [1.0], memory=2000)]
            for a, b in zip(parts, xl.sweep(network("tent6"), [0.0], [1.0], memory=2000), strict=True):
                assert_same_line(a, b, error=False)
            assert (await client.describe("plain")).units == net.units
            assert "plain" in [entry.name for entry in await client.models()]
            assert (await client.stats()).workers == 1
            with pytest.raises(MissingError):
                await client.restrict("nowhere", [0.0], [1.0])

    asyncio.run(ask())


def test_a_server_that_cannot_be_reached():
    with Client("127.0.0.1:9", retries=1, timeout=2.0) as client:
        assert not client.health()
        with pytest.raises(ServiceError, match="UNAVAILABLE"):
            client.models()


def test_a_token_is_not_sent_unencrypted():
    with pytest.raises(ArgumentError, match="unencrypted"):
        Client("example.org:1", token="a" * 16)
    Client("example.org:1", token="a" * 16, insecure=True).close()
    with pytest.raises(FileError):
        Client("example.org:1", token="a" * 16, tls="/nowhere/at/all.pem")


def test_without_grpc_the_client_names_the_missing_package():
    done = run_without_optional_packages("""
from exactline.errors import MissingError
try:
    import exactline.rpc.client
except MissingError as error:
    print(error.hint)
""")
    assert done.stdout == 'pip install "exactline[serve]"\n', done.stderr
