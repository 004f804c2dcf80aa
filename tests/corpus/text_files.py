"""Bad files in the text formats, .nnet and ERAN's: each a name, its bytes, the error and a word of its message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Bad: TypeAlias = tuple[str, bytes, str | None, str]  # an error of None: the file must load

NNET = b"// tiny\n2,2,1,3,\n2,3,1,\n0,\n-1,-1,\n1,1,\n0,0.5,1,\n1,2,4,\n"
NNET += b"1,-1,\n2,0.25,\n-3,1e-1,\n1,\n2,\n3,\n1,-2,3,\n7,\n"
ERAN = b"Normalize mean=[0.5] std=[0.25]\nReLU\n[[1, -1], [2, 0.5], [0, 3]]\n[0, 1, 2]\nAffine\n[[1, 1, -1]]\n[0.5]\n"
CONV = (
    b"Conv2D\nReLU, filters=1, kernel_size=[2, 2], input_shape=[3, 3, 1], stride=[1, 1], padding=0\n"
    b"[[[[1]], [[2]]], [[[3]], [[4]]]]\n[0.5]\nAffine\n[[1, 2, 3, 4]]\n[0]\n"
)
POOL = b"MaxPooling2D\npool_size=[2, 2], input_shape=[4, 4, 1]\nAffine\n[[1, 2, 3, 4]]\n[0]\n"
TOKENS = (  # not a number, the error, and what is said of it
    (b"nan", "NumberError", "finite"),
    (b"-NaN", "NumberError", "finite"),
    (b"inf", "NumberError", "finite"),
    (b"-Infinity", "NumberError", "finite"),
    (b"1e999", "NumberError", "larger"),
    (b"-1e999", "NumberError", "larger"),
    (b"0x10", "FileError", "decimal"),
    (b"1_000", "FileError", "decimal"),
    (b"one", "FileError", "decimal"),
    (b"1.2.3", "FileError", "decimal"),
    (b"--1", "FileError", "decimal"),
    (b"1e", "FileError", "decimal"),
    (b"1 2", "FileError", "decimal"),
    (b"1j", "FileError", "decimal"),
    (b"\xd9\xa1", "FileError", "decimal"),  # an Arabic one
    (b"\xef\xbc\x91", "FileError", "decimal"),  # a wide one
    (b"1\x002", "FileError", "decimal"),
    (b"'1'", "FileError", "decimal"),
    (b"__import__('os')", "FileError", "decimal"),
    (b"", "FileError", "missing"),
    (b"9" * 3000, "FileError", "characters"),
)
RUBBISH = bytes((i * 167 + 13) % 256 for i in range(997))


def named(prefix: str, ending: str, cases: Iterator[tuple[bytes, str | None, str]]) -> Iterator[Bad]:
    """Number the cases of one kind."""
    for number, (data, error, says) in enumerate(cases):
        yield f"{prefix}-{number:02d}{ending}", data, error, says


def nnet_files() -> Iterator[Bad]:
    """Bad .nnet files."""
    lines = NNET.splitlines(keepends=True)
    numbers = NNET.index(b"2,2,1")
    yield from named("nnet-cut-line", ".nnet", ((b"".join(lines[:n]), "FileError", "ends") for n in range(len(lines))))
    flips = range(numbers, len(NNET), 4)
    yield from named("nnet-flip", ".nnet", ((_flipped(NNET, at), "FileError", "decimal") for at in flips))
    yield from named("nnet-token", ".nnet", ((NNET.replace(b"0.25", t), e, w) for t, e, w in TOKENS))
    swaps = {  # in the file, instead of it, and what is said
        "layers-0": (b"2,2,1,3,", b"0,2,1,3,", "first line"),
        "layers-3": (b"2,2,1,3,", b"3,2,1,3,", "Expected 4 numbers"),
        "layers-1": (b"2,2,1,3,", b"1,2,1,3,", "Expected 2 numbers, found 3"),
        "layers-half": (b"2,2,1,3,", b"1.5,2,1,3,", "whole"),
        "layers-minus": (b"2,2,1,3,", b"-2,2,1,3,", "whole"),
        "layers-many": (b"2,2,1,3,", b"999999999,2,1,3,", "too many layers"),
        "layers-huge": (b"2,2,1,3,", b"1e300,2,1,3,", "whole"),
        "inputs-wrong": (b"2,2,1,3,", b"2,5,1,3,", "do not go"),
        "outputs-wrong": (b"2,2,1,3,", b"2,2,9,3,", "do not go"),
        "counts-short": (b"2,2,1,3,", b"2,2,", "first line"),
        "unit-zero": (b"2,3,1,", b"2,0,1,", "do not go"),
        "unit-minus": (b"2,3,1,", b"2,-3,1,", "whole"),
        "unit-more": (b"2,3,1,", b"2,4,1,", "Expected 2 numbers, found 1"),
        "unit-less": (b"2,3,1,", b"2,2,1,", "Expected 1 number, found 2"),
        "unit-2-billion": (b"2,3,1,", b"2,2147483647,1,", "whole"),
        "unit-wide": (b"2,3,1,", b"2,999999999,1,", "too many units"),
        "unit-overflow": (b"2,3,1,", b"2,18446744073709551618,1,", "whole"),
        "row-short": (b"2,0.25,", b"2,", "Expected 2 numbers, found 1"),
        "row-long": (b"2,0.25,", b"2,0.25,1,", "Expected 2 numbers, found 3"),
        "minima-short": (b"-1,-1,", b"-1,", "Expected 2 numbers, found 1"),
        "means-short": (b"0,0.5,1,", b"0,0.5,", "Expected 3 numbers, found 2"),
        "range-zero": (b"1,2,4,", b"1,0,4,", "range is 0"),
        "range-underflow": (b"1,2,4,", b"1,1e-999,4,", "range is 0"),
        "bias-missing": (b"1,\n2,\n3,\n", b"1,\n3,\n", "Expected 1 number, found 3"),
        "semicolons": (b"1,-1,", b"1;-1;", "decimal"),
        "brackets": (b"1,-1,", b"[1,-1],", "decimal"),
        "double-comma": (b"1,-1,", b"1,,-1,", "missing"),
        "more": (b"7,\n", b"7,\n8,\n", "after the last layer"),
        "cr-only": (b"\n", b"\r", "ends"),
    }
    for name, (old, new, says) in swaps.items():
        yield f"nnet-{name}.nnet", NNET.replace(old, new), "FileError", says
    wide = b"1,16000000,16000000,9,\n16000000,16000000,\n"
    yield "nnet-terabytes.nnet", wide, "FileError", "weights in one layer"
    yield "nnet-empty.nnet", b"", "FileError", "ends"
    yield "nnet-blank.nnet", b" \n\t\n \r\n", "FileError", "ends"
    yield "nnet-comments.nnet", b"// a\n" * 500, "FileError", "ends"
    yield "nnet-rubbish.nnet", RUBBISH, "FileError", "decimal"
    yield "nnet-zeros.nnet", b"\0" * 2000, "FileError", "decimal"
    yield "nnet-utf16.nnet", NNET.decode().encode("utf-16"), "FileError", "decimal"
    yield "nnet-is-eran.nnet", ERAN, "FileError", "decimal"
    yield "nnet-commas.nnet", b"," * 100_000, "FileError", "missing"
    yield "nnet-good-crlf.nnet", NNET.replace(b"\n", b"\r\n"), None, ""
    yield "nnet-good-bom.nnet", b"\xef\xbb\xbf" + NNET, None, ""


def eran_files() -> Iterator[Bad]:
    """Bad ERAN files."""
    lines = ERAN.splitlines(keepends=True)
    cuts = [(b"", "no layers"), *((b"".join(lines[:n]), "ends") for n in (2, 3, 5, 6)), (lines[0], "no layers")]
    yield from named("eran-cut-line", ".eran", ((data, "FileError", says) for data, says in cuts))
    inside = range(ERAN.index(b"[[1, -1]") + 2, ERAN.index(b"[0, 1, 2]") - 2, 3)
    yield from named("eran-cut", ".eran", ((ERAN[:at], "FileError", "") for at in inside))
    digits = [i for i, c in enumerate(ERAN) if chr(c).isdigit()]
    yield from named("eran-flip", ".eran", ((_flipped(ERAN, at), "FileError", "") for at in digits))
    letters = range(ERAN.index(b"ReLU"), ERAN.index(b"ReLU") + 4)
    yield from named("eran-name", ".eran", ((_flipped(ERAN, i, 1), "FileError", "not a known layer") for i in letters))
    yield from named("eran-token", ".pyt", ((ERAN.replace(b"-1]]", t + b"]]"), e, w) for t, e, w in TOKENS))
    swaps = {
        "open": (b"[[1, -1],", b"[1, -1],", "balanced"),
        "closed": (b"[0, 3]]", b"[0, 3]", "balanced"),
        "closed-twice": (b"[0, 3]]", b"[0, 3]]]", "balanced"),
        "ragged": (b"[2, 0.5]", b"[2]", "balanced"),
        "ragged-long": (b"[2, 0.5]", b"[2, 0.5, 1]", "balanced"),
        "empty-row": (b"[2, 0.5]", b"[]", "balanced"),
        "no-brackets": (b"[[1, 1, -1]]", b"1, 1, -1", "brackets"),
        "flat": (b"[[1, 1, -1]]", b"[1, 1, -1]", "Expected 2 levels of brackets, found 1"),
        "empty-list": (b"[[1, 1, -1]]", b"[[]]", "missing"),
        "between-rows": (b"[1, -1], [2", b"[1, -1] 7, [2", "between"),
        "round-brackets": (b"[0, 1, 2]", b"(0, 1, 2)", "decimal"),
        "deep": (b"[[1, 1, -1]]", b"[" * 40 + b"1" + b"]" * 40, "too many levels of brackets"),
        "very-deep": (b"[[1, 1, -1]]", b"[" * 200_000, "too many levels of brackets"),
        "bias-short": (b"[0, 1, 2]", b"[0, 1]", "bias of 3 numbers, found 2"),
        "bias-gone": (b"[0, 1, 2]\n", b"", "decimal"),
        "bias-deep": (b"[0, 1, 2]", b"[[0, 1, 2]]", "Expected 1 level of brackets, found 2"),
        "chain": (b"[[1, 1, -1]]", b"[[1, 1]]", "the previous layer has 3 units"),
        "numbers-first": (b"ReLU\n", b"", "Expected the name of a layer"),
        "unknown": (b"Affine", b"Dense", "not a known layer"),
        "std-zero": (b"std=[0.25]", b"std=[0]", "no std may be 0"),
        "std-gone": (b" std=[0.25]", b"", "cannot be read"),
        "std-two": (b"std=[0.25]", b"std=[1, 2]", "as many"),
        "std-nan": (b"std=[0.25]", b"std=[nan]", "finite"),
        "means-3": (b"mean=[0.5] std=[0.25]", b"mean=[1,2,3] std=[1,2,3]", "does not fit"),
        "normalize-twice": (b"ReLU\n", b"Normalize mean=[0] std=[1]\nReLU\n", "once"),
        "normalize-late": (b"Affine", b"Normalize mean=[0] std=[1]\nAffine", "once"),
        "skip": (b"Affine", b"SkipNet1\nAffine", "branches"),
        "parsum": (b"Affine", b"ParSumReLU", "branches"),
        "sign": (b"ReLU", b"Sign", "piecewise"),
        "sigmoid-inside": (b"ReLU", b"Sigmoid", "piecewise"),
        "cr-only": (b"\n", b"\r", ""),
        "tab-name": (b"ReLU", b"Re\tLU", "not a known layer"),
        "long-name": (b"ReLU", b"R" * 100_000, "not a known layer"),
    }
    kinds = {"skip": "UnsupportedError", "parsum": "UnsupportedError", "std-nan": "NumberError"}
    kinds |= {"sign": "UnsupportedError", "sigmoid-inside": "UnsupportedError"}
    for name, (old, new, says) in swaps.items():
        yield f"eran-{name}.eran", ERAN.replace(old, new), kinds.get(name, "FileError"), says
    yield "eran-blank.tf", b" \n\t\n\r\n", "FileError", "no layers"
    yield "eran-rubbish.tf", RUBBISH, "FileError", "not a known layer"
    yield "eran-zeros.tf", b"\0" * 2000, "FileError", "not a known layer"
    yield "eran-utf16.pyt", ERAN.decode().encode("utf-16"), "FileError", "not a known layer"
    yield "eran-many-layers.eran", b"Normalize mean=[0] std=[1]\n" * 2, "FileError", "once"
    yield "eran-good-crlf.eran", ERAN.replace(b"\n", b"\r\n"), None, ""
    yield "eran-good-bom.eran", b"\xef\xbb\xbf" + ERAN, None, ""
    yield from _images()


def _images() -> Iterator[Bad]:
    """Convolutions and pools whose settings are wrong."""
    conv = {
        "kernel": (b"kernel_size=[2, 2]", b"kernel_size=[3, 3]", "kernel_size"),
        "filters": (b"filters=1", b"filters=2", "filters"),
        "shape": (b"input_shape=[3, 3, 1]", b"input_shape=[3, 3]", "input_shape"),
        "shape-gone": (b"input_shape=[3, 3, 1], ", b"", "input_shape"),
        "shape-zero": (b"input_shape=[3, 3, 1]", b"input_shape=[0, 3, 1]", "input_shape"),
        "shape-huge": (b"input_shape=[3, 3, 1]", b"input_shape=[99999999, 99999999, 1]", "too many"),
        "shape-small": (b"input_shape=[3, 3, 1]", b"input_shape=[1, 1, 1]", "fit"),
        "channels": (b"input_shape=[3, 3, 1]", b"input_shape=[3, 3, 2]", "fit"),
        "stride-zero": (b"stride=[1, 1]", b"stride=[0, 1]", "stride"),
        "stride-minus": (b"stride=[1, 1]", b"stride=[-1, 1]", "cannot be read"),
        "stride-huge": (b"stride=[1, 1]", b"stride=[999999999, 1]", ""),
        "stride-three": (b"stride=[1, 1]", b"stride=[1, 1, 1]", "stride"),
        "padding-huge": (b"padding=0", b"padding=999999999", "fit"),
        "padding-overflow": (b"padding=0", b"padding=99999999999999999999", "cannot be read"),
        "twice": (b"padding=0", b"padding=0, padding=0", "once"),
        "setting": (b"padding=0", b"dilation=2", "not a known setting"),
        "word": (b"padding=0", b"padding=same", "cannot be read"),
        "activation": (b"ReLU,", b"Swish,", "activation"),
        "kernel-flat": (b"[[[[1]], [[2]]], [[[3]], [[4]]]]", b"[1, 2, 3, 4]", "Expected 4 levels of brackets, found 1"),
        "settings-gone": (CONV, b"Conv2D\n", "settings"),
    }
    for name, (old, new, says) in conv.items():
        yield f"eran-conv-{name}.pyt", CONV.replace(old, new), "FileError", says
    pool = {
        "size-gone": (b"pool_size=[2, 2], ", b"", "pool_size"),
        "size-zero": (b"pool_size=[2, 2]", b"pool_size=[0, 2]", "pool_size"),
        "size-huge": (b"pool_size=[2, 2]", b"pool_size=[999999999, 999999999]", ""),
        "padding-huge": (b"pool_size=[2, 2]", b"pool_size=[2, 2], padding=999999999", "too many"),
        "windows-huge": (POOL.splitlines()[1], b"pool_size=64, stride=1, input_shape=[999, 999, 9]", "too many"),
        "padding-wide": (b"pool_size=[2, 2]", b"pool_size=[2, 2], padding=2", "fit"),
        "chain": (b"[[1, 2, 3, 4]]", b"[[1, 2, 3]]", "the previous layer has 4 units"),
    }  # fmt: skip
    for name, (old, new, says) in pool.items():
        yield f"eran-pool-{name}.tf", POOL.replace(old, new), "FileError", says


def _flipped(data: bytes, at: int, bit: int = 64) -> bytes:
    """One bit of one byte the other way; bit 64 turns digits, commas and line ends into letters."""
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
