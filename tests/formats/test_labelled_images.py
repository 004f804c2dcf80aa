"""Images and labels are read from .npz, .npy and .csv files, and malformed files are refused."""

import numpy as np
import pytest

from exactline.errors import ArgumentError, FileError, LineError
from exactline.formats.labelled_images import make_labelled_images, read_labelled_images


def test_images_are_read_from_files(tmp_path):
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    labels = np.array([0, 1, 2, 0])
    np.savez(tmp_path / "a.npz", images=pixels, labels=labels)
    np.savez(tmp_path / "b.npz", x=pixels)
    np.save(tmp_path / "c.npy", pixels)
    rows = [",".join(map(str, [c, *p.reshape(-1)])) for c, p in zip(labels, pixels, strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    (tmp_path / "e.csv").write_text("\n".join(row.partition(",")[2] for row in rows))
    for name, known in (("a.npz", True), ("b.npz", False), ("c.npy", False), ("d.csv", True), ("e.csv", False)):
        got = read_labelled_images(tmp_path / name, (1, 2, 3), 255)
        assert got.points.tolist() == (pixels.reshape(4, 1, 2, 3) / 255).tolist()
        assert got.labels == ((0, 1, 2, 0) if known else None)
    assert len(got.take(2)) == 2


@pytest.mark.parametrize(
    ("name", "arrays", "error", "words"),
    [
        ("a.npz", {"pictures": np.zeros((2, 6))}, LineError, "no array named images"),
        ("a.npz", {"images": np.zeros((2, 5))}, LineError, "takes points of shape"),
        ("a.npz", {"images": np.zeros((0, 6))}, LineError, "takes points of shape"),
        ("a.npz", {"images": np.full((2, 6), np.nan)}, LineError, "NaN"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.zeros(3)}, LineError, "needs a whole number"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.array([0.5, 1])}, LineError, "needs a whole number"),
        ("a.npz", {"images": np.zeros((2, 6)), "labels": np.array([-1, 1])}, LineError, "needs a whole number"),
        ("a.npz", {"images": np.array(["a"] * 6)}, LineError, "takes points of shape"),
        ("a.csv", "1,2,x", FileError, "not numbers"),
        ("a.csv", "1,2,3\n1,2", FileError, "not numbers"),
        ("a.csv", "", LineError, "takes points of shape"),
        ("a.npz", "nothing of the kind", FileError, "damaged"),
        ("a.pkl", "x", FileError, "cannot be read from a file of this type"),
    ],
)
def test_malformed_image_files_are_refused(tmp_path, name, arrays, error, words):
    if isinstance(arrays, str):
        (tmp_path / name).write_text(arrays)
    else:
        np.savez(tmp_path / name, **arrays)
    with pytest.raises(error, match=words):
        read_labelled_images(tmp_path / name, (6,))
    with pytest.raises(ArgumentError):
        read_labelled_images(tmp_path / name, (6,), scale=0.0)


def test_images_in_another_layout_are_refused():
    images = np.arange(2 * 4 * 5 * 3.0).reshape(2, 4, 5, 3)
    with pytest.raises(LineError, match=r"shape \(3, 4, 5\); each image has shape \(4, 5, 3\)") as error:
        make_labelled_images("last", images, None, (3, 4, 5), "an example")
    assert "transpose" in error.value.hint
    moved = make_labelled_images("first", images.transpose(0, 3, 1, 2), None, (3, 4, 5), "an example")
    assert np.array_equal(moved.points, images.transpose(0, 3, 1, 2))
