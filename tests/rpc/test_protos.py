"""The generated code matches the .proto files, and arrays travel as raw little-endian bytes in bounded messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from exactline.errors import ArgumentError
from exactline.rpc.codec import decode_array, encode_array
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server.encode import encode_arrays, encode_breaks

ROOT = Path(__file__).parents[2]


def test_the_generated_code_is_current():
    done = subprocess.run([sys.executable, "scripts/protos.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_arrays_are_raw_and_little_endian():
    array = encode_array(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    assert array.data == bytes.fromhex("000000000000f03f" + "00000000000000c0")
    assert list(array.shape) == [1, 2]
    assert encode_array(torch.tensor([258])).data == b"\x02\x01" + 6 * b"\0"


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
def test_decoding_inverts_encoding(tensor):
    found = decode_array(encode_array(tensor), "x")
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
def test_arrays_whose_bytes_do_not_fit_their_type_and_shape_are_refused(array):
    with pytest.raises(ArgumentError):
        decode_array(array, "x")


def decode_rows(messages: Iterable[bytes]) -> list[pb.Rows]:
    return [pb.Answer.FromString(message).rows for message in messages]


@pytest.mark.parametrize("max_bytes", [1 << 21, 100, 48, 40, 33, 8, 7])
def test_pieces_of_breaks_join_to_the_arrays(max_bytes):
    """However small the pieces, none has too many bytes, and the breaks of each line are counted."""
    line = torch.tensor([3, 3, 3, 4, 5, 5, 5, 5])
    alphas, values = torch.rand(8, dtype=torch.float64), torch.rand(8, 2, 2, dtype=torch.float32)
    found = decode_rows(encode_breaks([alphas, values], line, max_bytes))
    joined = [b"".join(p.data for rows in found for p in rows.pieces if p.field == i) for i in (0, 1)]
    assert joined == [alphas.numpy().tobytes(), values.numpy().tobytes()]
    assert max(sum(len(p.data) for p in rows.pieces) for rows in found) <= max_bytes
    counts: dict[int, int] = {}
    for rows in found:
        for i, count in enumerate(rows.counts, rows.first_line):
            counts[i] = counts.get(i, 0) + count
    assert counts == {3: 3, 4: 1, 5: 4}


@pytest.mark.parametrize("max_bytes", [1 << 21, 50, 8, 3])
def test_pieces_of_arrays_join_to_the_arrays(max_bytes):
    tensors = [torch.arange(5), torch.zeros(0), torch.rand(3, 3, dtype=torch.float64), torch.tensor([True])]
    found = decode_rows(encode_arrays(tensors, max_bytes, first_field=2))
    for i, tensor in enumerate(tensors, 2):
        assert b"".join(p.data for rows in found for p in rows.pieces if p.field == i) == tensor.numpy().tobytes()
    assert max(sum(len(p.data) for p in rows.pieces) for rows in found) <= max_bytes
