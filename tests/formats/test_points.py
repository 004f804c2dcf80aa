"""Points from the command line: what is read, and what is refused before it is opened."""

import io
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest

from exactline.errors import ArgumentError, FileError, LineError, MissingError
from exactline.formats import points
from exactline.formats.points import ConversionWarning, convert_point, read_point
from exactline.formats.points_convert import PointOptions
from exactline.formats.points_range import compare_ranges

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


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<u4", "<i8", "<f2"])
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
    point = convert_point(str(drawn(tmp_path / "a.png")), shape, PointOptions(), "point")
    assert np.array_equal(point.values, expected)
    recoloured = [] if expected.size == 6 else ["recoloured from grey to colour"]
    assert point.conversions == [*recoloured, "divided by 255"]


def test_an_image_is_resized_and_may_have_16_bits(tmp_path):
    white = drawn(tmp_path / "white.png", np.full((8, 8, 3), 255, np.uint8))
    with pytest.warns(ConversionWarning, match="resized from 8 by 8 to 4 by 5 pixels"):
        assert np.array_equal(read_point(str(white), (3, 4, 5)), np.ones((3, 4, 5)))
    assert np.array_equal(read_point(white, (3, 4, 5), resize=True), np.ones((3, 4, 5)))
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


COLOURS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)  # (H, W, C)


def saved(path, array):
    np.save(path, array)
    return str(path)


@pytest.mark.parametrize(
    ("mode", "shape", "expected"),
    [
        ("RGB", (3, 6, 5), []),
        ("RGB", (1, 6, 5), ["recoloured from colour to grey"]),
        ("RGBA", (3, 6, 5), ["recoloured from colour with alpha to colour, without its alpha channel"]),
        ("L", (3, 6, 5), ["recoloured from grey to colour"]),
        ("P", (3, 6, 5), ["recoloured from a palette to colour"]),
        ("RGB", (3, 2, 2), ["resized from 6 by 5 to 2 by 2 pixels (height by width)"]),
        ("RGB", (2, 2), ["recoloured from colour to grey", "resized from 6 by 5 to 2 by 2 pixels (height by width)"]),
    ],
    ids=str,
)
def test_every_conversion_of_an_image_is_listed(tmp_path, mode, shape, expected):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(COLOURS).convert(mode).save(tmp_path / "a.png")
    found = convert_point(str(tmp_path / "a.png"), shape, PointOptions(), "point").conversions
    assert found == [*expected, "divided by 255"]


def test_a_grey_image_of_16_bits_is_not_cut_off_in_colour(tmp_path):
    deep = drawn(tmp_path / "deep.png", np.array([[0, 13107, 65535]], np.uint16))
    with pytest.warns(ConversionWarning, match="grey to colour"):
        assert read_point(deep, (3, 1, 3)).tolist() == [[[0, 0.2, 1]]] * 3
    assert read_point(deep, (1, 1, 3), scale=1).ravel().tolist() == [0, 13107, 65535]


def test_a_colour_image_fills_a_vector_in_the_order_that_is_asked_for(tmp_path):
    file = drawn(tmp_path / "a.png", COLOURS)
    assert np.array_equal(read_point(file, (90,)), np.moveaxis(COLOURS, 2, 0).ravel() / 255)
    assert np.array_equal(read_point(file, (90,), layout="hwc"), COLOURS.ravel() / 255)


def test_an_array_with_channels_last_needs_the_option(tmp_path):
    file = saved(tmp_path / "hwc.npy", COLOURS / 255)
    with pytest.raises(LineError, match=r"shape \(3, 6, 5\), the point has shape \(6, 5, 3\)") as error:
        read_point(file, (3, 6, 5))
    assert "--layout hwc." in error.value.hint
    assert np.array_equal(read_point(file, (3, 6, 5), layout="hwc"), np.moveaxis(COLOURS, 2, 0) / 255)
    turned = convert_point(file, (3, 6, 5), PointOptions(layout="hwc"), "point")
    assert turned.conversions == ["turned from (H, W, C) to (C, H, W)"]
    with pytest.raises(LineError):  # it is not (C, H, W), whatever the option says
        read_point(file, (3, 6, 5), layout="chw")


def test_an_array_with_channels_first_needs_the_option_for_a_network_with_channels_last(tmp_path):
    file = saved(tmp_path / "chw.npy", np.moveaxis(COLOURS, 2, 0) / 255)
    with pytest.raises(LineError) as error:
        read_point(file, (6, 5, 3))
    assert "--layout chw." in error.value.hint
    assert np.array_equal(read_point(file, (6, 5, 3), layout="chw"), COLOURS / 255)


def test_a_list_of_numbers_can_have_channels_last(tmp_path):
    file = saved(tmp_path / "list.npy", COLOURS.ravel() / 255)
    assert np.array_equal(read_point(file, (3, 6, 5)), (COLOURS.ravel() / 255).reshape(3, 6, 5))
    assert np.array_equal(read_point(file, (3, 6, 5), layout="hwc"), np.moveaxis(COLOURS, 2, 0) / 255)


def test_an_array_of_another_size_needs_the_option(tmp_path):
    file = saved(tmp_path / "large.npy", np.full((3, 64, 48), 0.25))
    with pytest.raises(LineError, match=r"shape \(3, 32, 32\), the point has shape \(3, 64, 48\)") as error:
        read_point(file, (3, 32, 32))
    assert "--resize" in error.value.hint
    assert np.allclose(read_point(file, (3, 32, 32), resize=True), 0.25, rtol=0, atol=1e-12)
    last = saved(tmp_path / "last.npy", np.full((64, 48, 3), 0.25))
    with pytest.raises(LineError) as error:
        read_point(last, (3, 32, 32), resize=True)
    assert "--layout hwc --resize" in error.value.hint
    assert read_point(last, (3, 32, 32), resize=True, layout="hwc").shape == (3, 32, 32)


def test_a_layout_that_one_of_the_points_does_not_have_is_refused_with_that_reason(tmp_path):
    file = saved(tmp_path / "first.npy", np.zeros((3, 32, 32)))
    with pytest.raises(LineError, match=r"With --layout hwc the point of shape \(3, 32, 32\) has 32 channels") as error:
        read_point(file, (3, 32, 32), layout="hwc")
    assert "this one has its channels first" in error.value.hint


def test_arrays_are_not_recoloured(tmp_path):
    with pytest.raises(LineError) as error:
        read_point(saved(tmp_path / "grey.npy", np.zeros((32, 32))), (3, 32, 32), resize=True)
    assert "3 channels: arrays are not recoloured" in error.value.hint


@pytest.mark.parametrize(("kind", "largest"), [(np.uint8, 255), (np.uint16, 65535)])
def test_an_array_of_pixels_needs_a_scale(tmp_path, kind, largest):
    file = saved(tmp_path / "pixels.npy", np.array([[[0, 51, largest]]], kind))
    with pytest.raises(LineError, match="these are pixels") as error:
        read_point(file, (1, 1, 3))
    assert f"--scale {largest}" in error.value.hint
    assert read_point(file, (1, 1, 3), scale=largest).ravel().tolist() == [0, 51 / largest, 1]
    assert read_point(file, (1, 1, 3), scale=1).ravel().tolist() == [0, 51, largest]
    assert read_point(saved(tmp_path / "mask.npy", np.array([0, 1], kind)), (2,)).tolist() == [0, 1]


def test_dimensions_of_one_do_not_matter_and_other_shapes_do(tmp_path):
    values = np.arange(12.0)
    for given, shape in (((1, 3, 2, 2), (3, 2, 2)), ((3, 4), (1, 3, 4)), ((1, 1, 12), (12,)), ((12,), (3, 2, 2))):
        file = saved(tmp_path / "a.npy", values.reshape(given))
        assert np.array_equal(read_point(file, shape), values.reshape(shape))
    file = saved(tmp_path / "a.npy", values.reshape(3, 2, 2))
    with pytest.raises(LineError) as error:
        read_point(file, (12,))
    assert "--layout flat" in error.value.hint
    assert np.array_equal(read_point(file, (12,), layout="flat"), values)
    table = convert_point(saved(tmp_path / "b.npy", values.reshape(3, 4)), (12,), PointOptions(), "point")
    assert table.conversions == ["reshaped from (3, 4) to (12,), in the order of its numbers"]


def test_mean_and_std_are_those_of_the_channels(tmp_path):
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    file = drawn(tmp_path / "a.png", COLOURS)
    expected = (COLOURS / 255 - mean) / std  # (H, W, C)
    assert np.allclose(read_point(file, (6, 5, 3), mean=mean, std=std), expected, rtol=0, atol=1e-14)
    first = np.moveaxis(expected, 2, 0)
    for shape in ((3, 6, 5), (1, 3, 6, 5)):
        found = read_point(file, shape, mean=list(mean), std=list(std))
        assert np.allclose(found, first.reshape(shape), rtol=0, atol=1e-14)
    array = saved(tmp_path / "a.npy", COLOURS)
    found = read_point(array, (3, 6, 5), layout="hwc", scale=255, mean=mean, std=std)
    assert np.allclose(found, first, rtol=0, atol=1e-14)
    assert read_point("1,2", (2,), mean=1.5, std=[0.5, 0.25]).tolist() == [-1.0, 2.0]
    listed = convert_point(array, (3, 6, 5), PointOptions(layout="hwc", scale=255.0, mean=(0.5,), std=(0.25,)), "point")
    assert listed.conversions[1:] == ["divided by 255", "the mean 0.5 subtracted", "divided by the std 0.25"]
    with pytest.raises(LineError, match="2 numbers do not fit") as error:
        read_point(file, (3, 6, 5), mean=[1, 2])
    assert "3 for the channels" in error.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "cwh"},
        {"scale": 0},
        {"scale": "much"},
        {"mean": []},
        {"mean": [float("nan")]},
        {"std": 0},
        {"std": "a"},
    ],
    ids=str,
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ArgumentError):
        read_point("1,2", (2,), **options)


@pytest.mark.parametrize(
    ("one", "other", "is_far"),
    [
        (np.linspace(0, 255, 64), np.linspace(0, 1, 64), True),
        (np.linspace(0, 1, 64), np.linspace(0, 255, 64), True),
        (np.linspace(0, 255, 64), np.linspace(-2.1, 2.6, 64), True),
        (np.linspace(0, 1, 64), np.linspace(-2.1, 2.6, 64), False),
        (np.zeros(64), np.linspace(0, 255, 64), False),  # a black image
        (np.linspace(0, 255, 8), np.linspace(0, 1, 8), False),  # features
    ],
)
def test_far_ranges_are_noticed(one, other, is_far):
    assert bool(compare_ranges(one, other, ("one", "other"))) == is_far


def make_exif(image, orientation):
    exif = image.Exif()
    exif[0x0112] = orientation
    return exif


def test_an_image_is_turned_as_its_camera_has_noted(tmp_path):
    """Orientation 6: the first row of the file is the right side of the picture."""
    image = pytest.importorskip("PIL.Image")
    image.fromarray(COLOURS).save(tmp_path / "a.png", exif=make_exif(image, 6))
    point = convert_point(str(tmp_path / "a.png"), (3, 5, 6), PointOptions(), "point")
    assert point.conversions == ["rotated by 90 degrees, as its EXIF orientation says", "divided by 255"]
    assert np.array_equal(point.values * 255, np.moveaxis(np.rot90(COLOURS, -1), 2, 0))


def test_what_is_not_taken_of_an_image_is_listed(tmp_path):
    image = pytest.importorskip("PIL.Image")
    frames = [image.fromarray(COLOURS), image.fromarray(COLOURS[::-1].copy())]
    frames[0].save(tmp_path / "moving.png", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "holes.png", transparency=(1, 2, 3))
    (tmp_path / "deep.png").write_bytes(make_png_of_16_bits(COLOURS.astype(">u2") * 257))
    for name, expected in (
        ("moving", "taken from the first of 2 frames"),
        ("holes", "made opaque: its transparent colours are shown"),
        ("deep", "reduced from 16 to 8 bits"),
    ):
        point = convert_point(str(tmp_path / f"{name}.png"), (3, 6, 5), PointOptions(), "point")
        assert point.conversions == [expected, "divided by 255"]
        assert np.array_equal(point.values * 255, np.moveaxis(COLOURS, 2, 0))


def make_png_of_16_bits(pixels):  # (H, W, 3) of big-endian uint16
    height, width, _ = pixels.shape
    rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))
    chunks = (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def test_integers_of_any_type_are_pixels_for_a_network_of_images(tmp_path):
    file = saved(tmp_path / "pixels.npy", np.moveaxis(COLOURS, 2, 0).astype(np.int64))
    with pytest.raises(LineError, match="these are pixels"):
        read_point(file, (3, 6, 5))
    assert read_point(file, (3, 6, 5), scale=255).max() <= 1
    assert read_point(saved(tmp_path / "vector.npy", np.arange(90)), (90,)).max() == 89
