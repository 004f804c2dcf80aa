"""Points from the command line: what is read, and what is refused before it is opened."""

import io
import sys
import zipfile

import numpy as np
import pytest

from exactline.errors import FileError, LineError, MissingError
from exactline.formats import points
from exactline.formats.points import read_point

IMAGE = np.array([[0, 51, 102], [153, 204, 255]], dtype=np.uint8)  # (2, 3) fifths


def packed(path, **members):
    """A .npz as it comes from anywhere: members are bytes, or arrays."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as box:
        for name, value in members.items():
            file = io.BytesIO()
            np.save(file, value) if isinstance(value, np.ndarray) else file.write(value)
            box.writestr(f"{name}.npy", file.getvalue())
    return path


def drawn(path, pixels=IMAGE):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize("text", ["1,-2,3e0,.5", " 1, -2,3,0.5", "-1,-2,-3,-4"])
def test_numbers_inline_take_the_network_s_shape(text):
    expected = np.array([float(t) for t in text.split(",")]).reshape(2, 2)
    assert np.array_equal(read_point(text, (2, 2)), expected)


@pytest.mark.parametrize("kind", ["<f4", ">f8", "u1", "<i8", "<f2"])
def test_arrays_of_all_kinds_are_read(tmp_path, kind):
    array = np.arange(6).reshape(1, 2, 3).astype(kind)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    assert np.array_equal(read_point(str(tmp_path / "a.npy"), (6,)), np.arange(6.0))


def test_an_npz_is_asked_by_key(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.ones(2))
    np.savez_compressed(tmp_path / "one.npz", only=np.ones(2))
    assert read_point(f"{tmp_path}/two.npz:b", (2,)).tolist() == [1, 1]
    assert read_point(f"{tmp_path}/one.npz", (2,)).tolist() == [1, 1]
    with pytest.raises(LineError, match="exactly one array") as error:
        read_point(f"{tmp_path}/two.npz", (2,))
    assert "a, b" in error.value.hint
    with pytest.raises(LineError, match="no array 'c'"):
        read_point(f"{tmp_path}/two.npz:c", (2,))


def test_a_csv_is_asked_by_row(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text('\ufeffage,income\n20,30\n\n"30",-5.5e1\n', encoding="utf-8")
    assert read_point(str(file), (2,)).tolist() == [20, 30]
    assert read_point(f"{file}:0", (2,)).tolist() == [20, 30]
    assert read_point(f"{file}:1", (2,)).tolist() == [30, -55]
    for row, problem in (("2", "no row 2"), ("-1", "not the number of a row"), ("x", "not the number of a row")):
        with pytest.raises(LineError, match=problem):
            read_point(f"{file}:{row}", (2,))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 2, 3), IMAGE[None] / 255),
        ((2, 3), IMAGE / 255),
        ((6,), IMAGE.flatten() / 255),
        ((6, 1), IMAGE.reshape(6, 1) / 255),
        ((3, 2, 3), np.stack([IMAGE] * 3) / 255),
        ((2, 3, 3), np.stack([IMAGE] * 3, 2) / 255),  # channels last
    ],
    ids=str,
)
def test_an_image_becomes_the_network_s_shape(tmp_path, shape, expected):
    assert np.array_equal(read_point(str(drawn(tmp_path / "a.png")), shape), expected)


def test_an_image_is_resized_and_may_have_16_bits(tmp_path):
    white = drawn(tmp_path / "white.png", np.full((8, 8, 3), 255, np.uint8))
    assert np.array_equal(read_point(str(white), (3, 4, 5)), np.ones((3, 4, 5)))
    deep = drawn(tmp_path / "deep.png", np.array([[0, 13107, 65535]], np.uint16))
    assert read_point(str(deep), (1, 1, 3)).flatten().tolist() == [0, 0.2, 1]


def test_an_image_that_does_not_fit_is_refused(tmp_path):
    for shape in ((7,), (7, 1), (5, 2, 7)):
        with pytest.raises(LineError, match="image of 2 by 3 pixels does not fit"):
            read_point(str(drawn(tmp_path / "a.png")), shape)


def test_an_image_without_pillow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingError) as error:
        read_point("a.png", (1, 2, 3))
    assert "exactline[plot]" in error.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1,2,3", r"shape \(2,\), the point has shape \(3,\)"),
        ("", "neither a list of numbers nor a known type of file"),
        ("1,,2", "neither a list of numbers nor a known type of file"),
        ("model.pt", "neither a list of numbers nor a known type of file"),
        ("1,nan", "NaN or infinite"),
        ("1,1e999", "NaN or infinite"),
        ("a.npy:b", "no parts"),
    ],
)
def test_a_point_that_cannot_be_used_is_a_line_error(text, problem):
    with pytest.raises(LineError, match=problem):
        read_point(text, (2,), "--from")


def test_types_that_are_not_real_numbers_are_refused(tmp_path):
    for array in (np.array([1j, 2]), np.array([True, False]), np.array(["a", "b"])):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(LineError, match="does not hold real numbers"):
            read_point(f"{tmp_path}/a.npy", (2,))
    np.save(tmp_path / "a.npy", np.array([2**60, 1]))
    with pytest.raises(LineError, match="float64 cannot hold"):
        read_point(f"{tmp_path}/a.npy", (2,))


def test_pickles_lies_and_bombs_are_not_opened(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([print, 1], dtype=object), allow_pickle=True)
    honest = io.BytesIO()
    np.save(honest, np.zeros(8))
    (tmp_path / "lie.npy").write_bytes(honest.getvalue().replace(b"(8,), ", b"(9,), "))
    (tmp_path / "huge.npy").write_bytes(honest.getvalue().replace(b"(8,), }          ", b"(99999999999,), }"))
    (tmp_path / "short.npy").write_bytes(honest.getvalue()[:9])
    packed(tmp_path / "bomb.npz", a=np.zeros(1 << 20))
    packed(tmp_path / "many.npz", **{f"a{i}": b"" for i in range(points.MAX_NPZ_ARRAYS + 1)})
    packed(tmp_path / "lie.npz", a=(tmp_path / "lie.npy").read_bytes())
    (tmp_path / "damaged.npz").write_bytes(packed(tmp_path / "good.npz", a=np.zeros(9)).read_bytes()[:-9])
    (tmp_path / "text.png").write_bytes(b"not an image")
    (tmp_path / "a.csv").write_bytes(b"1,\xff")
    for name in sorted(p.name for p in tmp_path.iterdir() if p.name != "good.npz"):
        with pytest.raises(FileError) as error:
            read_point(str(tmp_path / name), (8,))
        assert str(tmp_path / name) in error.value.where, name
