"""Files, stores and messages of version 1 load, and hold what the library computes now.

The folder version_1 was written by the version before the modules were renamed, with the bundled network
`exactline.zoo.loan_network` and the points of inputs.npz. Numbers that were computed then are compared within a few
roundings, because other processors round differently; numbers that are computed now are compared bit for bit.
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.decide.intervals import IntervalTable
from exactline.results.codec import LINE_ARRAYS, PLANE_ARRAYS
from exactline.rpc.client import requests
from exactline.rpc.client.decode import AnswerReader
from exactline.rpc.client.requests import StreamRequest
from exactline.rpc.legacy.transform import transform
from exactline.rpc.limits import Limits
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.zoo import loan_network, tent_network
from tests.rpc import legacy_wire
from tests.rpc.same import assert_same_line, assert_same_lines, assert_same_plane, assert_same_table, assert_same_tensor
from tests.rpc.server_process import start_server

FOLDER = Path(__file__).parent / "version_1"
CALLS = ("restrict", "restrict_many", "decide", "attribute", "sweep", "plane")  # in the order of messages.json
RELATIVE_ROUNDING = 16 * torch.finfo(torch.float64).eps  # a sum of a few products and a division
POINTS = {name: torch.from_numpy(array) for name, array in np.load(FOLDER / "inputs.npz").items()}
START, END, LINES, CORNERS = (POINTS[name] for name in ("start", "end", "lines", "corners"))


def assert_close(ours: Any, theirs: Any) -> None:
    """Compare arrays: integers exactly, floats within a few roundings."""
    ours, theirs = torch.as_tensor(ours), torch.as_tensor(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    scale = float(theirs.abs().max()) if theirs.is_floating_point() and theirs.numel() else 0.0
    tolerance = RELATIVE_ROUNDING if theirs.is_floating_point() else 0.0
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * scale)


def assert_close_lines(ours: xl.Restriction, theirs: xl.Restriction) -> None:
    for array in LINE_ARRAYS:
        assert_close(getattr(ours, array.attribute), getattr(theirs, array.attribute))
    assert (ours.stored_values is None) == (theirs.stored_values is None)
    for a, b in zip(ours.stored_values or (), theirs.stored_values or (), strict=True):
        assert_close(a, b)
    for a, b in zip(ours.lines.starts + ours.lines.ends, theirs.lines.starts + theirs.lines.ends, strict=True):
        assert_same_tensor(a, b)
    for name in ("names", "units", "several_inputs", "several_outputs", "dtype", "stopped", "is_minimal", "rewrite"):
        assert getattr(ours, name) == getattr(theirs, name), name


def assert_close_planes(ours: xl.PlaneRestriction, theirs: xl.PlaneRestriction) -> None:
    for array in PLANE_ARRAYS:
        assert_close(getattr(ours, array.attribute), getattr(theirs, array.attribute))
    for a, b in zip(ours.stored_values or (), theirs.stored_values or (), strict=True):
        assert_close(a, b)
    for name in ("names", "units", "dtype", "ambiguous", "rewrite", "until"):
        assert getattr(ours, name) == getattr(theirs, name), name


def assert_close_tables(ours: IntervalTable, theirs: IntervalTable) -> None:
    for field in fields(IntervalTable):
        if field.name in ("start_errors", "stop_errors"):  # estimates, of which only the size is comparable
            assert bool((getattr(ours, field.name) <= 4 * getattr(theirs, field.name)).all())
            assert bool((getattr(theirs, field.name) <= 4 * getattr(ours, field.name)).all())
        else:
            assert_close(getattr(ours, field.name), getattr(theirs, field.name))


# ---- saved results


@pytest.mark.parametrize("values", [True, False])
def test_a_saved_line_loads(values):
    path = FOLDER / ("line.safetensors" if values else "line_without_values.safetensors")
    computed = xl.restrict(loan_network(), START, END, values=values)
    assert_close_lines(xl.Restriction.load(path), computed)
    loaded = xl.Restriction.load(path, loan_network())
    assert_close(loaded.at(0.4), computed.at(0.4))
    assert loaded.error == pytest.approx(computed.error)


def test_a_saved_line_that_was_stopped_early_loads():
    computed = xl.restrict(tent_network(3), [0.0], [1.0], max_breaks=5)
    loaded = xl.Restriction.load(FOLDER / "line_stopped.safetensors")
    assert_close_lines(loaded, computed)
    assert loaded.stopped


class TwoInputs(torch.nn.Module):
    """Two inputs of two numbers, two outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x + y), torch.maximum(x, -y).sum(1)


def test_a_saved_line_of_several_inputs_and_outputs_loads():
    start, end = (
        (torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 1.0])),
        (torch.tensor([2.0, -1.0]), torch.tensor([0.25, -2.0])),
    )
    model = TwoInputs().eval()
    computed = xl.restrict(model, start, end)
    assert len(computed) == 3
    path = FOLDER / "line_pair.safetensors"
    counted = computed.origin_table.clone()
    counted[1:-1, 2] -= 1  # version 1 did not count leaders that change exactly at the break of another unit
    assert_close_lines(xl.Restriction.load(path), replace(computed, origin_table=counted))
    for a, b in zip(xl.Restriction.load(path, model).at(0.4), computed.at(0.4), strict=True):
        assert_close(a, b)


def test_a_saved_plane_loads():
    computed = xl.restrict_plane(loan_network(), CORNERS)
    assert_close_planes(xl.PlaneRestriction.load(FOLDER / "plane.safetensors"), computed)
    assert len(xl.PlaneRestriction.load(FOLDER / "plane.safetensors", loan_network())) == len(computed)


# ---- networks


@pytest.mark.parametrize("suffix", ["onnx", "eran"])
def test_a_saved_network_loads(suffix):
    network = xl.load(FOLDER / f"loan.{suffix}")
    points = LINES.reshape(-1, 2)
    with torch.no_grad():
        assert_close(network(points), loan_network().double()(points))
    assert_close(xl.restrict(network, START, END).alphas, xl.restrict(loan_network(), START, END).alphas)


# ---- stores


@pytest.fixture
def open_store(tmp_path):
    """Open a copy of a store."""

    def open_copy(job: str) -> xl.scale.Store:
        store = xl.scale.open(shutil.copytree(FOLDER / f"store_{job}", tmp_path / job), loan_network())
        assert store.complete
        assert len(store) == len(LINES)
        return store

    return open_copy


def compute_lines() -> xl.Restrictions:
    return xl.restrict_many(loan_network(), LINES[:, 0], LINES[:, 1])


def test_a_store_of_lines_opens(open_store):
    for stored, computed in zip(open_store("restrict"), compute_lines(), strict=True):
        assert_close_lines(stored, computed)


def test_a_store_of_decisions_opens(open_store):
    for stored, computed in zip(open_store("decide"), compute_lines().decisions(), strict=True):
        assert stored.labels == computed.labels
        assert_close(stored.boundaries, computed.boundaries)
        assert [i.margin for i in stored] == pytest.approx([i.margin for i in computed], rel=1e-12)


def test_a_store_of_attributions_opens(open_store):
    computed = IntegratedGradients(loan_network().double()).attribute(LINES[:, 1], LINES[:, 0], target=0)
    for stored, attributions in zip(open_store("attribute"), computed, strict=True):
        assert_close(stored.attributions, attributions)
        assert stored.target == 0


def test_a_store_of_densities_opens(open_store):
    for stored, computed in zip(open_store("density"), compute_lines(), strict=True):
        length = float((computed.lines.ends[0] - computed.lines.starts[0]).norm())
        assert stored.count == len(computed.alphas)
        assert stored.length == pytest.approx(length, rel=1e-14)
        assert sum(stored.origins.values()) == len(computed.alphas) - 2


def test_a_run_continues_a_store(tmp_path):
    """Nothing is computed again, so the job, the network and the lines are recognized."""
    folder = shutil.copytree(FOLDER / "store_restrict", tmp_path / "store")
    shards = sorted(folder.rglob("*.safetensors"))
    store = xl.scale.run(loan_network(), LINES, out=folder)
    assert store.complete
    assert sorted(folder.rglob("*.safetensors")) == shards


# ---- messages


def read_messages(call: str) -> tuple[str, bytes, list[bytes]]:
    """Return the path of the method, the request and the answers of a recorded call."""
    message = json.loads((FOLDER / "messages.json").read_text())[CALLS.index(call)]
    answers = [base64.b64decode(answer) for answer in message["answers"]]
    return f"/exactline.v1.Exactline/{message['method']}", base64.b64decode(message["request"]), answers


def make_request(call: str) -> StreamRequest[Any]:
    """Make the request of a recorded call with today's client."""
    arguments = {
        "restrict": (START, END),
        "restrict_many": (LINES[:, 0], LINES[:, 1]),
        "decide": (START, END, "max", 1),
        "attribute": (LINES[:2, 1], LINES[:2, 0], 0),
        "sweep": (START, END),
        "plane": (CORNERS,),
    }[call]
    return getattr(requests, call)("loan", *arguments)


def decode_answers(call: str, answers: list[bytes]) -> Any:
    """Decode answers with today's client; the parts of a sweep are a list."""
    request, reader, parts = make_request(call), AnswerReader(), []
    for answer in answers:
        reader.add(answer)
        if reader.part_end is not None:
            parts.append(request.decode(reader))
    if call == "sweep":
        reader.require_tail()
        return parts
    return request.decode(reader)


def compute_answer(call: str, network: xl.Network) -> Any:
    """Compute what a recorded call asks for with the library."""
    if call == "restrict":
        return xl.restrict(network, START, END)
    if call == "restrict_many":
        return xl.restrict_many(network, LINES[:, 0], LINES[:, 1])
    if call == "decide":
        return xl.restrict(network, START, END).decisions()
    if call == "attribute":
        return IntegratedGradients(network).attribute(LINES[:2, 1], LINES[:2, 0], target=0)
    if call == "sweep":
        return list(xl.sweep(network, START, END))
    return xl.restrict_plane(network, CORNERS)


@pytest.fixture(scope="module")
def loan_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("version_1") / "loan.onnx"
    xl.network.as_network(loan_network(), [START]).save(path)
    return path


@pytest.fixture(scope="module")
def channel(loan_file) -> Iterator[grpc.Channel]:
    with start_server(models=loan_file.parent, workers=1) as server, grpc.insecure_channel(server.address) as channel:
        yield channel


MESSAGE_TYPES = {
    "Restrict": pb.RestrictRequest,
    "Sweep": pb.RestrictRequest,
    "Decide": pb.DecideRequest,
    "Attribute": pb.AttributeRequest,
    "Plane": pb.PlaneRequest,
}


@pytest.mark.parametrize("call", CALLS)
def test_requests_are_what_they_were_but_for_new_options(call):
    path, request, _ = read_messages(call)
    made = make_request(call)
    message = MESSAGE_TYPES[path.rpartition("/")[2]].FromString(made.data)
    message.options.ClearField("no_errors")
    message.options.ClearField("joined")
    assert (made.path, message.SerializeToString()) == (path, request)


@pytest.mark.parametrize("call", CALLS)
def test_the_server_answers_old_requests(channel, loan_file, call):
    path, request, _ = read_messages(call)
    found = decode_answers(call, list(channel.unary_stream(path)(request, timeout=60)))
    assert_same_answer(call, found, compute_answer(call, xl.load(loan_file)))


def assert_same_answer(call: str, found: Any, computed: Any) -> None:
    """Compare bit for bit."""
    if call == "restrict":
        assert_same_line(found, computed)
    elif call == "restrict_many":
        assert_same_lines(found, computed)
    elif call == "decide":
        assert_same_line(found.line, computed.line)
        assert_same_table(found.table, computed.table)
    elif call == "attribute":
        assert_same_tensor(found, computed)
    elif call == "sweep":
        for a, b in zip(found, computed, strict=True):
            assert_same_line(a, b, error=False)
    else:
        assert_same_plane(found, computed)


@pytest.mark.parametrize("call", CALLS)
def test_the_client_decodes_old_answers(loan_file, call):
    network = xl.load(loan_file)
    found, computed = decode_answers(call, read_messages(call)[2]), compute_answer(call, network)
    if call == "restrict":
        assert_close_lines(found, computed)
        assert found.checksum == network.checksum()
        assert found.error == pytest.approx(computed.error)
    elif call == "restrict_many":
        for a, b in zip(found, computed, strict=True):
            assert_close_lines(a, b)
    elif call == "decide":
        assert_close_lines(found.line, computed.line)
        assert_close_tables(found.table, computed.table)
    elif call == "attribute":
        assert_close(found, computed)
    elif call == "sweep":
        for a, b in zip(found, computed, strict=True):
            assert_close_lines(a, b)
    else:
        assert_close_planes(found, computed)


def test_the_server_maps_the_old_name_of_an_engine(channel, loan_file):
    """Clients of version 1 call the engine "patches" "local"; only the server knows that name."""
    path, data, _ = read_messages("restrict")
    request = pb.RestrictRequest.FromString(data)
    request.options.engine = "local"
    answers = list(channel.unary_stream(path)(request.SerializeToString(), timeout=60))
    found = decode_answers("restrict", answers)
    assert found.engine.startswith("patches")
    assert_same_line(found, xl.restrict(xl.load(loan_file), START, END, engine="patches"))
    with pytest.raises(xl.ArgumentError, match="no engine 'local'"):
        requests.restrict("loan", START, END, engine="local")
    with pytest.raises(xl.ArgumentError, match="no engine 'local'"):
        xl.restrict(loan_network(), START, END, engine="local")


def test_the_legacy_protocol_answers_old_requests():
    """The layers of the loan network, a line and a plane; values are sent as float32."""
    recorded = json.loads((FOLDER / "legacy_messages.json").read_text())
    messages, answers = ([base64.b64decode(m) for m in recorded[key]] for key in ("requests", "answers"))
    responses = [*transform(messages, Limits())]
    (line, plane), (old_line, old_plane) = (map(legacy_wire.decode_response, side) for side in (responses, answers))
    ulp = np.finfo(np.float32).eps
    for ours, theirs in ((line.values, old_line.values), *zip(plane.pieces, old_plane.pieces, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=ulp * np.abs(b).max())
    np.testing.assert_allclose(line.ratios, old_line.ratios, rtol=0, atol=RELATIVE_ROUNDING)
    assert (plane.dims, plane.subspace) == (old_plane.dims, old_plane.subspace)
