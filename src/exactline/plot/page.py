"""The frame of every page: one self-contained file whose names cannot break out and which may fetch nothing."""

from __future__ import annotations

import html
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Layers from the first to the last, as inks on light paper and as lights on dark.
INKS = ("#440154", "#3B528B", "#21918C", "#5DC863")
LIGHTS = ("#FDE725", "#90D743", "#35B779", "#3FA7D6")


def write_page(path: str | Path, data: dict[str, Any], title: str, parts: Sequence[str]) -> Path:
    """Write a page, whole or not at all.

    ``parts`` are its scripts in order; the first also names its body and its style.
    """
    from ..files import write_atomically

    write_atomically(Path(path), _page(data, title, parts))
    return Path(path)


def packed(values: NDArray[Any]) -> dict[str, str]:
    """An array, flat, without loss: differences of neighbours' bits, bytes of one weight together, deflated.

    Real numbers stay float64, whole ones become int32.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "f":
        kind, bits = "f8", flat.astype("<f8").view("<u8")
    else:
        kind, bits = "i4", flat.astype("<i4").view("<u4")
    steps = np.diff(bits, prepend=bits.dtype.type(0))  # of unsigned numbers: they wrap around, and back again
    planes = steps.view(np.uint8).reshape(len(steps), bits.dtype.itemsize).T
    return {"kind": kind, "data": b64encode(zlib.compress(planes.tobytes(), 6)).decode()}


def along(stops: Sequence[str], share: float) -> str:
    """The colour at a share of the way through several.

    >>> along(("#000000", "#0000ff", "#ffffff"), 0.75)
    '#8080ff'
    """
    place = min(int(share * (len(stops) - 1)), len(stops) - 2)
    return mixed(stops[place], stops[place + 1], share * (len(stops) - 1) - place)


def mixed(start: str, end: str, share: float) -> str:
    """The colour at a share of the way from one to another."""
    one, two = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (start, end))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(one, two, strict=True))


def bearers(births: NDArray[np.int64], names: Sequence[str]) -> list[dict[str, Any]]:
    """Nodes that bore breaks or edges, in order: how many, and their colours on light and dark pages."""
    nodes, tally = np.unique(births, return_counts=True)
    some = [(node, count) for node, count in zip(nodes.tolist(), tally.tolist(), strict=True) if node >= 0]
    last = max(len(some) - 1, 1)
    return [
        {
            "node": node,
            "name": names[node],
            "count": count,
            "light": along(INKS, i / last),
            "dark": along(LIGHTS, i / last),
        }
        for i, (node, count) in enumerate(some)
    ]


def _page(data: dict[str, Any], title: str, parts: Sequence[str]) -> bytes:
    scripts = [_part(f"{name}.js") for name in ("report_frame", *parts)]
    script = "\n".join(["(async () => {", '"use strict";', *scripts, "})();"])
    style = "\n".join(_part(f"{name}.css") for name in ("report_frame", parts[0]))
    filled = {
        "SCRIPT_HASH": _hash(script),
        "STYLE_HASH": _hash(style),
        "TITLE": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "STYLE": style,
        "BODY": _part(f"{parts[0]}.html"),
        "DATA": _json(data),
        "SCRIPT": script,
    }
    frame = _part("report_frame.html")  # filled in one pass, so that no name is taken for a place
    return re.sub(r"%([A-Z_]+)%", lambda place: filled[place[1]], frame).encode("ascii")


def _json(data: dict[str, Any]) -> str:
    """JSON in ASCII in which no sign can end the element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _part(name: str) -> str:
    return resources.files("exactline.plot").joinpath("assets", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    """What a browser compares a script or a style with before it obeys it."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
