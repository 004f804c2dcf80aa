"""Tests of the checker of proofs: what is changed in any field is rejected, never accepted, and never a traceback."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import Network, as_network
from exactline.verification.checker import ProofCheck
from exactline.verification.proof import Proof
from exactline.verification.property import Property
from tests.cli.running import run as run  # pytest finds the fixture by its name

JUNK: tuple[Any, ...] = (None, "zz", -1, 0.5, 1e308, float("nan"), [], {}, True)


def make_case(inputs: int) -> tuple[Network, Property, dict[str, Any]]:
    """A random network on a box with one or two free inputs, a property just below its minimum, and the proof."""
    torch.manual_seed(inputs)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1)).eval()
    network = as_network(model, [torch.zeros(3)])
    lower, upper = [-2.0, -2.0, 0.25], [2.0, 2.0 if inputs == 2 else -2.0, 0.25]
    axes = [torch.linspace(a, b, 101, dtype=torch.float64) for a, b in zip(lower, upper, strict=True)]
    least = float(network(torch.cartesian_prod(*axes)).min())
    prop = Property.of(lower, upper, [[1.0]], [least - 0.02])
    found = xl.verify(network, prop)
    assert found.proof is not None
    return network, prop, found.proof.document


CASES = {inputs: make_case(inputs) for inputs in (1, 2)}


def check(inputs: int, document: Any) -> ProofCheck:
    network, prop, _ = CASES[inputs]
    return xl.check_proof(network, prop, Proof(document))


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document; of long lists only some elements."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from list_paths(inner, (*path, key))
    elif isinstance(value, list):
        for k in sorted({0, 1, len(value) // 2, len(value) - 1} & set(range(len(value)))):
            yield from list_paths(value[k], (*path, k))


def replaced(document: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return new
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return changed


def get(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@pytest.mark.parametrize("inputs", [1, 2])
def test_the_proof_itself_is_accepted(inputs):
    assert check(inputs, CASES[inputs][2])


@pytest.mark.parametrize("inputs", [1, 2])
def test_junk_in_any_field_is_rejected(inputs):
    document = CASES[inputs][2]
    for path in list_paths(document):
        for junk in JUNK:
            if path and get(document, path) != junk:
                answer = check(inputs, replaced(document, path, junk))
                assert not answer.accepted, (path, junk)
                assert answer.reason


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_missing_or_doubled_element_is_rejected(inputs):
    document = CASES[inputs][2]
    for path in list_paths(document):
        value = get(document, path)
        if isinstance(value, dict):
            for key in value:
                assert not check(inputs, replaced(document, path, {k: v for k, v in value.items() if k != key})), path
        if isinstance(value, list) and value:
            for k in range(0, len(value), max(len(value) // 4, 1)):
                assert not check(inputs, replaced(document, path, value[:k] + value[k + 1 :])), (path, k)
            if path != ("parts",):  # a part may be proved twice
                assert not check(inputs, replaced(document, path, [*value, value[-1]])), path
                assert (
                    len(value) == 1 or value[0] == value[-1] or not check(inputs, replaced(document, path, value[::-1]))
                )


def test_a_changed_break_is_rejected():
    pieces = CASES[1][2]["parts"][0]["pieces"]
    for k in range(len(pieces) - 1):
        top, bottom = (int(n, 16) for n in pieces[k][1].split("/"))
        for step in (-1, 1):  # by a part in 2**200: both pieces still meet, but a unit crosses inside of one
            moved = f"{(top << 200) + step:x}/{bottom << 200:x}"
            changed = copy.deepcopy(CASES[1][2])
            changed["parts"][0]["pieces"][k][1] = moved
            changed["parts"][0]["pieces"][k + 1][0] = moved
            assert not check(1, changed)
            assert "pattern does not hold" in check(1, changed).reason


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_changed_letter_of_a_pattern_is_rejected(inputs):
    document = CASES[inputs][2]
    key = "pieces" if inputs == 1 else "tree"
    entries = document["parts"][0][key]
    for k, entry in enumerate(entries):
        if entry[0] in ("cut", "outside"):
            continue
        for at in range(len(entry[-1])):
            letter = entry[-1][at]
            other = {"0": "1", "1": "0"}.get(letter, "0")
            changed = copy.deepcopy(document)
            changed["parts"][0][key][k][-1] = entry[-1][:at] + other + entry[-1][at + 1 :]
            assert not check(inputs, changed), (k, at)


def test_other_networks_and_properties_are_rejected():
    for inputs, (network, prop, document) in CASES.items():
        limit = float(prop.disjuncts[0].limit[0])
        lower, upper = prop.boxes[0].lower.tolist(), prop.boxes[0].upper.tolist()
        weaker = Property.of(lower, upper, [[1.0]], [limit + 0.5])
        assert "can hold there" in xl.check_proof(network, weaker, Proof(document)).reason
        wider = Property.of([-2.5, *lower[1:]], upper, [[1.0]], [limit])
        assert not xl.check_proof(network, wider, Proof(document))
        elsewhere = Property.of([*lower[:2], 0.5], [*upper[:2], 0.5], [[1.0]], [limit])
        assert "no part has the box" in xl.check_proof(network, elsewhere, Proof(document)).reason
        inner = Property.of([-1.0, *lower[1:]], [1.0, *upper[1:]], [[1.0]], [limit])
        assert xl.check_proof(network, inner, Proof(document))  # what holds on a box holds on its parts
        other = as_network(nn.Linear(3, 1), [torch.zeros(3)])
        assert "another network" in xl.check_proof(other, prop, Proof(document)).reason
        assert inputs


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"3", b"\xff\xfe", b"{" * 100_000, b'{"format": NaN}', gzip.compress(b"{}")[:9]],
    ids=["empty", "torn", "list", "null", "number", "binary", "nested", "almost empty", "torn gzip"],
)
def test_files_that_are_no_proofs(run, tmp_path, data):
    network, _, _ = CASES[1]
    network.save(tmp_path / "net.onnx")
    names = "".join(f"(declare-const X_{i} Real)(assert (>= X_{i} 0))(assert (<= X_{i} 0))" for i in range(3))
    (tmp_path / "prop.vnnlib").write_text(f"{names}(declare-const Y_0 Real)(assert (>= Y_0 100))")
    path = tmp_path / ("proof.json.gz" if data[:2] == b"\x1f\x8b" else "proof.json")
    path.write_bytes(data)
    status, out, err = run("check-proof", "net.onnx", "prop.vnnlib", str(path))
    assert status in (1, 6)
    assert out.startswith("rejected") if status == 1 else "try:" in err


def test_files_that_cannot_be_read_or_written(run, tmp_path):
    CASES[1][0].save(tmp_path / "net.onnx")
    (tmp_path / "prop.vnnlib").write_text("(declare-const X_0 Real")
    assert run("check-proof", "net.onnx", "prop.vnnlib", str(tmp_path))[0] == 6
    assert run("check-proof", "net.onnx", "prop.vnnlib", "missing.json")[0] == 6
    assert run("verify", "net.onnx", "prop.vnnlib")[0] == 6
    assert run("verify", "net.onnx", "prop.vnnlib", "--proof", "no/such/folder.json")[0] in (2, 6)
    assert run("verify", "net.onnx", "prop.vnnlib", "--seconds", "-1")[0] in (2, 6)
    assert not Path(tmp_path / "folder.json").exists()


def test_the_document_is_plain_json():
    for _, _, document in CASES.values():
        assert json.loads(json.dumps(document)) == document
