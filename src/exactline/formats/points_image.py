"""Read a .png or .jpg file as a point: recoloured, resized and scaled to the input of a network."""

from __future__ import annotations

import io
import warnings
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ExactlineError, FileError, LineError
from ..optional import require_package
from . import limits
from .open_file import read_file
from .points_convert import (
    MAX_BYTE,
    Array,
    ConvertedPoint,
    PointOptions,
    Shape,
    describe_resize,
    find_image_layout,
    normalize_point,
    resize_array,
)

MAX_IMAGE_PIXELS = limits.MAX_VALUE_ELEMENTS  # of an image
MAX_16_BIT = 65535  # the white of an image of 16 bits
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's name of the colours, by the number of channels
COLOURS = {
    "1": "black and white",
    "L": "grey",
    "LA": "grey with alpha",
    "P": "a palette",
    "PA": "a palette with alpha",
    "RGB": "colour",
    "RGBA": "colour with alpha",
    "CMYK": "CMYK colour",
    "YCbCr": "YCbCr colour",
}
EXIF_ORIENTATION = 0x0112  # the number of the tag
EXIF_TURNS = {
    2: "mirrored left to right",
    3: "rotated by 180 degrees",
    4: "mirrored top to bottom",
    5: "mirrored and rotated by 90 degrees",
    6: "rotated by 90 degrees",
    7: "mirrored and rotated by 90 degrees",
    8: "rotated by 90 degrees",
}
HAS_ALPHA = ("LA", "PA", "RGBA")


def read_image(path: Path, shape: Shape, options: PointOptions) -> ConvertedPoint:
    """Read an image in the shape of a network's input, with values from 0 (black) to 1 unless the options say other.

    Args:
        path: A .png or .jpg file.
        shape: Of the network's input: (C, H, W), (H, W, C), (H, W), or a vector with one number for each pixel and
            channel.
        options: ``scale`` divides the pixels, by default 255; ``layout`` is the order of a vector, by default chw.

    Raises LineError if an image does not fit the shape, FileError if it cannot be read, MissingError without Pillow.
    """
    with require_package("Images need Pillow.", where=str(path), hint='pip install "exactline[plot]", which brings it'):
        from PIL import Image

    data = read_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        limits.check_limit(image.width * image.height, MAX_IMAGE_PIXELS, "pixels", str(path))
        losses = _list_losses(image)
        point = _convert_image(_turn_upright(image), shape, options, str(path))
        point.conversions[:0] = losses
    except ExactlineError:
        raise
    except Exception as problem:  # Pillow's decoders raise many types of errors
        raise FileError(
            f"The image cannot be read: {problem}.", where=str(path), hint="Give a .png or .jpg."
        ) from problem
    normalize_point(point, shape, options, str(path))
    return point


def _turn_upright(image: Any) -> Any:
    """The image as viewers show it, where a camera has noted how it was held."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image)


def _list_losses(image: Any) -> list[str]:
    """What is not taken of a file, or not as it is stored: the pixels' order, further frames, bits and transparency."""
    losses: list[str] = []
    stored_mode = _read_stored_mode(image)  # before the EXIF data, which come after the pixels
    turn = EXIF_TURNS.get(image.getexif().get(EXIF_ORIENTATION))
    if turn:
        losses.append(f"{turn}, as its EXIF orientation says")
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        losses.append(f"taken from the first of {frames} frames")
    if stored_mode.endswith(";16B") and not image.mode.startswith("I"):
        losses.append("reduced from 16 to 8 bits")
    if "transparency" in image.info:
        losses.append("made opaque: its transparent colours are shown")
    return losses


def _read_stored_mode(image: Any) -> str:
    """Pillow's name of the pixels in the file, such as RGB;16B."""
    mode = image.tile[0][3] if image.tile else ""
    return str(mode[0] if isinstance(mode, tuple) else mode)


def _convert_image(image: Any, shape: Shape, options: PointOptions, where: str) -> ConvertedPoint:
    layout, (channels, height, width) = _choose_layout(shape, (image.height, image.width), options, where)
    point = ConvertedPoint(np.zeros(0))
    is_16_bit = image.mode.startswith("I")
    if is_16_bit:
        pixels = _recolour_16_bit(image, channels, point)
    else:
        pixels = _recolour(image, channels, (height, width), point)
    if pixels.shape[1:] != (height, width):
        pixels = resize_array(pixels, height, width)
    if (image.height, image.width) != (height, width):
        point.conversions.append(describe_resize((image.height, image.width), (height, width)))
    scale = (MAX_16_BIT if is_16_bit else MAX_BYTE) if options.scale is None else options.scale
    if scale != 1:
        point.conversions.append(f"divided by {scale:g}")
    point.values = (np.moveaxis(pixels, 0, 2) if layout == "hwc" else pixels).reshape(shape) / scale
    return point


def _choose_layout(
    shape: Shape, size: tuple[int, int], options: PointOptions, where: str
) -> tuple[str, tuple[int, int, int]]:
    """The layout of the network's input, and the channels, height and width of the image that fits it."""
    for channels in MODES:
        if prod(shape) == max(shape, default=1) == channels * prod(size):  # a vector, possibly as a row or a column
            return options.layout or "chw", (channels, *size)
    image = find_image_layout(shape)
    if image is None:
        raise LineError(
            f"An image of {size[0]} by {size[1]} pixels does not fit a network that takes points of shape {shape}.",
            where=where,
            hint="Images fit shapes (C, H, W) with 1, 3 or 4 channels, and vectors with one number for each pixel.",
        )
    return image


def _recolour(image: Any, channels: int, size: tuple[int, int], point: ConvertedPoint) -> Array:  # (C, H, W)
    """Convert an image of 8 bits to grey, colour or colour with alpha, and resize it with Pillow."""
    from PIL import Image

    mode = MODES[channels]
    if image.mode != mode:
        before, after = COLOURS.get(image.mode, image.mode), COLOURS[mode]
        dropped = ", without its alpha channel" if image.mode in HAS_ALPHA and mode != "RGBA" else ""
        point.conversions.append(f"recoloured from {before} to {after}{dropped}")
    converted = image.convert(mode)
    if (image.height, image.width) != size:
        converted = converted.resize(size[::-1], Image.Resampling.BILINEAR)
    return np.moveaxis(np.asarray(converted, dtype=np.float64).reshape(*size, channels), 2, 0)


def _recolour_16_bit(image: Any, channels: int, point: ConvertedPoint) -> Array:  # (C, H, W)
    """Convert a grey image of 16 bits, which Pillow would cut off at 255."""
    grey = np.asarray(image, dtype=np.float64)[None]
    if channels == 1:
        return grey
    point.conversions.append(f"recoloured from grey to {COLOURS[MODES[channels]]}")
    pixels = np.repeat(grey, channels, 0)
    if channels == 4:
        pixels[3] = MAX_16_BIT  # opaque
    return pixels
