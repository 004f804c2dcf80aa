"""Wrong endings, archives, folders, and ONNX files that keep data elsewhere."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from onnx import TensorProto

from .onnx_files import changed
from .text_files import ERAN, NNET, RUBBISH, Bad

PICKLED = ("pt", "pth", "pt2", "pkl", "pickle", "ckpt", "bin", "joblib", "npy", "npz", "h5", "keras", "jit")
UNKNOWN = ("txt", "json", "onnx.bak", "nnet2", "zip", "tar", "safetensors", "pb", "py", "gz", "eran.xz")
HELD = b"\0" * 24  # the weights of the good model: 3 x 2 single floats


def container_files() -> Iterator[Bad]:
    """Files whose ending or packing is wrong."""
    for ending in PICKLED:
        yield f"pickle.{ending}", b"cos\nsystem\n(S'true'\ntR.", "FileError", "not opened"
    yield "pickle-upper.PT", b"\x80\x04.", "FileError", "not opened"
    yield "pickle-packed.pt.gz", _packed(b"\x80\x04."), "FileError", "not opened"
    for ending in UNKNOWN:
        yield f"unknown.{ending}", NNET, "FileError", "not a known format"
    yield "no-ending", NNET, "FileError", "no ending"
    small = _packed(ERAN)
    for at in range(1, len(small) - 1, 11):
        yield f"packed-cut-{at:03d}.eran.gz", small[:at], "FileError", "gzip"
    yield "packed-rubbish.nnet.gz", RUBBISH, "FileError", "gzip"
    yield "packed-not.nnet.gz", NNET, "FileError", "gzip"
    yield "packed-zlib.nnet.gz", zlib.compress(NNET), "FileError", "gzip"
    yield "packed-behind.nnet.gz", _packed(NNET) + b"behind", "FileError", "gzip"
    yield "packed-crc.nnet.gz", _packed(NNET)[:-8] + b"\0" * 8, "FileError", "gzip"
    yield "packed-empty.nnet.gz", b"", "FileError", "ends"
    yield "packed-nothing.eran.gz", _packed(b""), "FileError", "no layers"
    yield "packed-bad.nnet.gz", _packed(NNET[:40]), "FileError", "Expected 3 numbers"
    yield "packed-twice.nnet.gz", _packed(_packed(NNET)), "FileError", "decimal"
    bomb = _packed(b"\0" * (20 << 20))
    yield "packed-bomb.nnet.gz", bomb, "FileError", "unpacked bytes"
    yield "packed-bomb.onnx.gz", bomb, "FileError", "unpacked bytes"
    yield "packed-bomb-parts.eran.gz", _packed(b" " * (2 << 20)) * 12, "FileError", "unpacked bytes"
    yield "packed-many-parts.eran.gz", _packed(b"") * 120_000, "FileError", "streams"
    yield "packed-good.nnet.gz", _packed(NNET), None, ""
    yield "packed-good-parts.nnet.gz", _packed(NNET[:40]) + _packed(NNET[40:]), None, ""
    for name, (entries, says) in OUTSIDE.items():
        yield f"outside-{name}.onnx", _outside(entries), "FileError", says
    broken = _outside({"location": "QQQQ"}).replace(b"QQQQ", b"\x88\xff\xfe\x80")
    yield "outside-not-utf8.onnx", broken, "FileError", "UTF-8"


OUTSIDE: dict[str, tuple[dict[str, str], str]] = {
    "absolute": ({"location": "/etc/passwd"}, "outside of"),
    "parent": ({"location": "../weights.bin"}, "outside of"),
    "parent-inside": ({"location": "sub/../../weights.bin"}, "outside of"),
    "backslash": ({"location": "..\\weights.bin"}, "outside of"),
    "gone": ({}, "outside of"),
    "empty": ({"location": ""}, "outside of"),
    "zero-byte": ({"location": "weights\0.bin"}, "outside of"),
    "missing": ({"location": "nowhere.bin"}, "cannot be read"),
    "missing-folder": ({"location": "nowhere/weights.bin"}, "cannot be read"),
    "long-name": ({"location": "w" * 5000}, "cannot be read"),
    "through-file": ({"location": "weights.bin/more"}, "cannot be read"),
    "folder": ({"location": "sub"}, ""),
    "dot": ({"location": "."}, ""),
    "link": ({"location": "link.bin"}, "behind a symbolic link"),
    "link-folder": ({"location": "link/weights.bin"}, "behind a symbolic link"),
    "link-broken": ({"location": "broken.bin"}, "behind a symbolic link"),
    "hard-link": ({"location": "hard.bin"}, "several hard links"),
    "device": ({"location": "link-null"}, "behind a symbolic link"),
    "short": ({"location": "short.bin"}, "ends before"),
    "offset": ({"location": "weights.bin", "offset": "8"}, "ends before"),
    "offset-minus": ({"location": "weights.bin", "offset": "-8"}, "needs 24 bytes, but refers to"),
    "offset-huge": ({"location": "weights.bin", "offset": "9" * 30}, "ends before"),
    "offset-digits": ({"location": "weights.bin", "offset": "9" * 5000}, "not a number"),
    "offset-word": ({"location": "weights.bin", "offset": "start"}, "not a number"),
    "length-less": ({"location": "weights.bin", "length": "8"}, "needs 24 bytes, but refers to"),
    "length-2gb": ({"location": "weights.bin", "length": str(2**31)}, "needs 24 bytes, but refers to"),
    "length-minus": ({"location": "weights.bin", "length": "-24"}, "needs 24 bytes, but refers to"),
}
PREPARED = (
    ("folder.onnx", "FileError", "directory"),
    ("folder.nnet", "FileError", "directory"),
    ("folder.eran.gz", "FileError", "directory"),
    ("missing.onnx", "FileError", "cannot be read"),
    ("m" * 300 + ".nnet", "FileError", "cannot be read"),
    ("zero\0byte.nnet", "FileError", "cannot be read"),
    ("broken-link.eran", "FileError", "cannot be read"),
    ("looped-link.eran", "FileError", "cannot be read"),
)


def prepared_names() -> list[str]:
    """The names of what is not a file."""
    return [name for name, *_ in PREPARED]


def prepared(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Make what is not a file, and the data that ONNX files name."""
    for name in ("folder.onnx", "folder.nnet", "folder.eran.gz", "sub"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(HELD)
    (folder / "sub" / "weights.bin").write_bytes(HELD)
    (folder / "short.bin").write_bytes(HELD[:-1])
    (folder / "twice.bin").write_bytes(HELD)
    links = {"link.bin": "sub/weights.bin", "link": "sub", "broken.bin": "gone.bin", "link-null": "/dev/null"}
    links |= {"broken-link.eran": "gone.eran", "looped-link.eran": "looped-link.eran"}
    for name, target in links.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    (folder / "hard.bin").unlink(missing_ok=True)
    os.link(folder / "twice.bin", folder / "hard.bin")
    yield from PREPARED


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _outside(entries: dict[str, str]) -> bytes:
    tensor = TensorProto(name="w", dims=[3, 2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return changed(lambda m: m.graph.initializer[0].CopyFrom(tensor))
