"""Bad VNNLIB files: each a name, its bytes, a word of the message, and where it must point to (line, column)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TypeAlias

Bad: TypeAlias = tuple[str, bytes, str, tuple[int, int] | None]

HEAD = b"(declare-const X_0 Real)\n(declare-const Y_0 Real)\n"
BOX = b"(assert (>= X_0 0))\n(assert (<= X_0 1))\n"
GOOD = HEAD + BOX + b"(assert (<= Y_0 0))\n"
STATEMENTS = {  # what stands in the fifth line, the message, and the column it points to
    "word-alone": (b"assert", "outside of brackets", 1),
    "number-alone": (b"17", "outside of brackets", 1),
    "closed-twice": (b"(assert (<= Y_0 0)))", "not opened", 20),
    "never-closed": (b"(assert (<= Y_0 0)", "never closed", 1),
    "inner-never-closed": (b"(assert (and (<= Y_0 0)", "never closed", 9),
    "nothing": (b"()", "not a statement", 1),
    "unknown-statement": (b"(assume (<= Y_0 0))", "not a statement", 1),
    "statement-of-brackets": (b"((<= Y_0 0))", "not a statement", 1),
    "define-fun": (b"(define-fun f () Real 1)", "not a statement", 1),
    "push": (b"(push 1)", "not a statement", 1),
    "assert-nothing": (b"(assert)", "one formula", 1),
    "assert-two": (b"(assert (<= Y_0 0) (<= Y_0 1))", "one formula", 1),
    "assert-word": (b"(assert true)", "Expected a constraint", 9),
    "assert-variable": (b"(assert Y_0)", "Expected a constraint", 9),
    "assert-term": (b"(assert (+ Y_0 1))", "Expected a constraint", 9),
    "assert-empty": (b"(assert ())", "nothing in these brackets", 9),
    "compare-one": (b"(assert (<= Y_0))", "at least 2", 9),
    "compare-none": (b"(assert (<=))", "at least 2", 9),
    "compare-formula": (b"(assert (<= (<= Y_0 0) 1))", "not a formula", 13),
    "and-none": (b"(assert (and))", "at least 1", 9),
    "or-none": (b"(assert (or))", "at least 1", 9),
    "or-word": (b"(assert (or Y_0))", "Expected a constraint", 13),
    "and-number": (b"(assert (and 1 (<= Y_0 0)))", "Expected a constraint", 14),
    "not-none": (b"(assert (not))", "at least 1", 9),
    "not-two": (b"(assert (not (<= Y_0 0) (<= Y_0 1)))", "one formula", 9),
    "implies": (b"(assert (=> (<= Y_0 0) (<= Y_0 1)))", "not a supported operator", 10),
    "ite": (b"(assert (ite (<= Y_0 0) (<= Y_0 1) (<= Y_0 2)))", "not a supported operator", 10),
    "let": (b"(assert (let ((a 1)) (<= Y_0 a)))", "not a supported operator", 10),
    "max": (b"(assert (<= (max Y_0 1) 1))", "not a supported operator", 14),
    "head-of-brackets": (b"(assert ((+ 1 2) Y_0))", "not a supported operator", 10),
    "square": (b"(assert (<= (* Y_0 Y_0) 1))", "not linear", 13),
    "product-of-sums": (b"(assert (<= (* (+ Y_0 1) (+ X_0 1)) 1))", "not linear", 13),
    "divided-by-variable": (b"(assert (<= (/ 1 Y_0) 1))", "not linear", 13),
    "divided-by-zero": (b"(assert (<= (/ Y_0 0) 1))", "not linear", 13),
    "divided-by-nothing": (b"(assert (<= (/ Y_0) 1))", "at least 2", 13),
    "plus-nothing": (b"(assert (<= (+) 1))", "at least 1", 13),
    "plus-formula": (b"(assert (<= (+ (<= Y_0 0) 1) 1))", "not a formula", 16),
    "undeclared-output": (b"(assert (<= Y_1 0))", "not declared", 13),
    "undeclared-input": (b"(assert (<= X_7 0))", "not declared", 13),
    "lower-case": (b"(assert (<= y_0 0))", "no number and no variable", 13),
    "leading-zero": (b"(assert (<= Y_00 0))", "no number and no variable", 13),
    "nan": (b"(assert (<= Y_0 nan))", "no number", 17),
    "inf": (b"(assert (<= Y_0 -inf))", "no number", 17),
    "too-large": (b"(assert (<= Y_0 1e999))", "larger than any double", 17),
    "sum-too-large": (b"(assert (<= (+ 1e308 1e308) Y_0))", "larger than any double", 13),
    "product-too-large": (b"(assert (<= (* 1e308 1e308 Y_0) 1))", "larger than any double", 13),
    "hexadecimal": (b"(assert (<= Y_0 0x10))", "no number", 17),
    "underscore": (b"(assert (<= Y_0 1_000))", "no number", 17),
    "two-points": (b"(assert (<= Y_0 1.2.3))", "no number", 17),
    "exponent-cut": (b"(assert (<= Y_0 1e))", "no number", 17),
    "code": (b"(assert (<= Y_0 __import__))", "no number", 17),
    "string": (b'(assert (<= Y_0 "0"))', "no number", 17),
    "arabic-digit": ("(assert (<= Y_0 \u0661))".encode(), "no number", 17),
    "nul": (b"(assert (<= Y_0 \x00))", "no number", 17),
    "many-digits": (b"(assert (<= Y_0 " + b"9" * 5000 + b"))", "no number", 17),
    "declared-twice": (b"(declare-const X_0 Real)", "twice", 1),
    "integer": (b"(declare-const X_1 Int)", "must be Real", 1),
    "kind-missing": (b"(declare-const X_1)", "must be Real", 1),
    "kind-two": (b"(declare-const X_1 Real Real)", "must be Real", 1),
    "function-of": (b"(declare-fun X_1 (Real) Real Real)", "must be Real", 1),
    "other-name": (b"(declare-const Z_0 Real)", "not a variable", 1),
    "negative-name": (b"(declare-const X_-1 Real)", "not a variable", 1),
    "huge-name": (b"(declare-const X_99999999999999999999 Real)", "not a variable", 1),
    "declare-nothing": (b"(declare-const)", "not a variable", 1),
    "declare-brackets": (b"(declare-const (X_1) Real)", "not a variable", 1),
}  # fmt: skip


def vnnlib_files() -> Iterator[Bad]:
    """Every bad file."""
    for name, (line, says, column) in STATEMENTS.items():
        yield f"{name}.vnnlib", HEAD + BOX + line + b"\n", says, (5, column)
    either = b"(assert (or (<= Y_0 0) (>= Y_0 1)))\n"
    whole: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "X_0 is not declared"),
        "only-comments": (b"; nothing\n; here", "X_0 is not declared"),
        "no-inputs": (b"(declare-const Y_0 Real)\n(assert (<= Y_0 0))", "X_0 is not declared"),
        "no-outputs": (b"(declare-const X_0 Real)\n" + BOX, "Y_0 is not declared"),
        "gap": (GOOD + b"(declare-const X_2 Real)", "X_1 is not declared"),
        "no-bounds": (HEAD + b"(assert (<= Y_0 0))", "no lower bound"),
        "no-lower-bound": (HEAD + b"(assert (<= X_0 1))", "no lower bound"),
        "no-upper-bound": (HEAD + b"(assert (>= X_0 1))", "no upper bound"),
        "bound-in-one-disjunct": (HEAD + b"(assert (or (and (>= X_0 0) (<= X_0 1)) (<= X_0 1)))", "no lower bound"),
        "bound-by-output": (HEAD + b"(assert (<= 0 X_0 Y_0))", "no upper bound"),
        "too-many-disjuncts": (HEAD + BOX + either * 20, "disjuncts"),
        "cut": (GOOD[:-5], "never closed"),
        "huge-declared": (b"(declare-const X_999999999 Real)\n(declare-const Y_0 Real)", "X_0 is not declared"),
        "too-deep": (HEAD + BOX + b"(assert " + b"(and " * 50_000, "nested more than"),
        "only-opened": (b"(" * 1_000_000, "nested more than"),
        "not-text": (HEAD + b"\xff\xfe(assert", "not text"),
        "binary": (bytes((i * 167 + 13) % 256 for i in range(997)), "not text"),
        "onnx": (b"\x08\x07\x12\x07pytorch:\x0b", "outside of brackets"),
    }
    for name, (data, says) in whole.items():
        yield f"{name}.vnnlib", data, says, None
    yield "cut.vnnlib.gz", gzip.compress(GOOD, mtime=0)[:-12], "gzip", None
    yield "plain.vnnlib.gz", GOOD, "gzip", None
