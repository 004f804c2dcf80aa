"""Exported stores hold every number."""

import sys

import numpy as np
import pytest
import torch

import exactline as xl
from exactline.errors import ArgumentError
from tests.scale.examples import random_lines, small_network


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    lines: list = list(zip(*random_lines(300), strict=True))
    lines[4] = (None, None)
    return xl.scale.run(small_network(), lines, "decide", out=tmp_path_factory.mktemp("export"))


def test_parquet(store, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    store.export(tmp_path / "all.parquet")
    rows = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert [row["line"] for row in rows] == [n for n, _ in store.items()]
    for row, (_, decided) in zip(rows, store.items(), strict=True):
        assert row["break_alpha"] == decided.line.alphas.tolist()
        assert row["break_value_0"] == decided.line.values.tolist()
        assert row["interval_starts"] == [i.start for i in decided]
        assert row["start_0"] == decided.line.lines.starts[0][0].tolist()


@pytest.mark.slow
def test_zarr(store, tmp_path):
    zarr = pytest.importorskip("zarr")
    store.export(tmp_path / "all.zarr")
    group = zarr.open_group(str(tmp_path / "all.zarr"), mode="r")
    numbers, offsets = group["line/number"][:], group["line/break_offsets"][:]
    assert len(offsets) == len(numbers) + 1
    alphas, values = group["break/alpha"][:], group["break/value.0"][:]
    for row, number in enumerate(numbers):
        line, rows = store[int(number)].line, slice(*offsets[row : row + 2])
        assert np.array_equal(alphas[rows], line.alphas.numpy())
        assert np.array_equal(values[rows], line.values.numpy())
    assert group.attrs["job"]["name"] == "decide"
    store.export(tmp_path / "all.zarr")  # overwrites the first


def test_other_formats_are_refused(store, tmp_path):
    with pytest.raises(ArgumentError, match="parquet"):
        store.export(tmp_path / "all.csv")


@pytest.mark.parametrize("pandas", [True, False])
def test_the_summary_table(store, monkeypatch, pandas):
    if pandas:
        pytest.importorskip("pandas")
    else:
        monkeypatch.setitem(sys.modules, "pandas", None)
    table = store.summary()
    assert len(table["breaks"]) == 300
    if not pandas:
        assert isinstance(table, dict)
        assert table["line"].tolist() == list(range(300))
    counts = np.asarray(table["breaks"])
    assert np.isnan(counts[4])
    assert np.asarray(table["error"])[4] == "line"
    starts, ends = random_lines(300)
    for number, decided in store.items():
        assert counts[number] == len(decided.line) + 1
        assert np.asarray(table["intervals"])[number] == len(decided)
        length = float(torch.linalg.vector_norm(ends[number] - starts[number]))
        assert np.asarray(table["length"])[number] == pytest.approx(length, rel=1e-12)
