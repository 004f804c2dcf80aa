"""The code of the messages is what their .proto files say, and the wire is as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exactline.errors import ArgumentError
from exactline.rpc.codec import array_of, tensor_of
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server import writer
from exactline.rpc.server.writer import Column

ROOT = Path(__file__).parents[2]


def test_the_generated_code_is_current():
    done = subprocess.run([sys.executable, "scripts/protos.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_arrays_are_raw_and_little_endian():
    array = array_of(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    assert array.data == bytes.fromhex("000000000000f03f" + "00000000000000c0")
    assert list(array.shape) == [1, 2]
    assert array_of(torch.tensor([258])).data == b"\x02\x01" + 6 * b"\0"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[0.1, -0.0], [float("inf"), 5e-324]], dtype=torch.float64),
        torch.tensor([0.1], dtype=torch.float32),
        torch.tensor(3),
        torch.tensor([True, False]),
        torch.zeros(0, 3),
        torch.arange(6).view(2, 3).t(),
    ],
    ids=str,
)
def test_arrays_come_back_as_they_went(tensor):
    found = tensor_of(array_of(tensor), "x")
    assert found.dtype == tensor.dtype
    assert found.shape == tensor.shape
    assert found.contiguous().view(-1).numpy().tobytes() == tensor.contiguous().view(-1).numpy().tobytes()


@pytest.mark.parametrize(
    "array",
    [
        pb.Array(dtype=pb.FLOAT64, shape=[2], data=b"1234567"),
        pb.Array(dtype=pb.FLOAT64, shape=[1 << 62, 1 << 62], data=b"12345678"),
        pb.Array(dtype=pb.FLOAT64, shape=[0, 1 << 62], data=b"12345678"),
        pb.Array(dtype=pb.DTYPE_UNSPECIFIED, shape=[1], data=b"12345678"),
        pb.Array(dtype=17, shape=[1], data=b"12345678"),  # pyright: ignore[reportArgumentType]
        pb.Array(dtype=pb.FLOAT64, shape=[1] * 17, data=b"12345678"),
    ],
    ids=str,
)
def test_arrays_that_are_not_what_they_say_are_refused(array):
    with pytest.raises(ArgumentError):
        tensor_of(array, "x")


def rows_in(messages: list[bytes]) -> list[pb.Rows]:
    return [pb.Answer.FromString(message).rows for message in messages]


@pytest.mark.parametrize("most", [1 << 21, 100, 48, 40, 33, 8, 7])
def test_breaks_in_pieces_are_the_breaks(most):
    """However small the pieces: joined they are the arrays, none has too many bytes, and lines are counted."""
    line = torch.tensor([3, 3, 3, 4, 5, 5, 5, 5])
    alphas, values = torch.rand(8, dtype=torch.float64), torch.rand(8, 2, 2, dtype=torch.float32)
    columns = [Column("alphas", torch.float64), Column("value.0", torch.float32, (2, 2))]
    found = rows_in(list(writer.breaks(columns, [alphas, values], line, most)))
    joined = [b"".join(p.data for rows in found for p in rows.pieces if p.field == i) for i in (0, 1)]
    assert joined == [alphas.numpy().tobytes(), values.numpy().tobytes()]
    assert max(sum(len(p.data) for p in rows.pieces) for rows in found) <= most
    counts: dict[int, int] = {}
    for rows in found:
        for i, count in enumerate(rows.counts, rows.first_line):
            counts[i] = counts.get(i, 0) + count
    assert counts == {3: 3, 4: 1, 5: 4}


@pytest.mark.parametrize("most", [1 << 21, 50, 8, 3])
def test_arrays_in_pieces_are_the_arrays(most):
    tensors = [torch.arange(5), torch.zeros(0), torch.rand(3, 3, dtype=torch.float64), torch.tensor([True])]
    found = rows_in(list(writer.arrays(tensors, most, first=2)))
    for i, tensor in enumerate(tensors, 2):
        assert b"".join(p.data for rows in found for p in rows.pieces if p.field == i) == tensor.numpy().tobytes()
    assert max(sum(len(p.data) for p in rows.pieces) for rows in found) <= most
