"""Checks proofs that a property has no counterexample, in rational arithmetic and without the code that makes them."""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..formats.open_file import read_file
from ..fp_context import full_precision
from ..humanize import count_noun
from .checker_cells import ProofRejected, RationalCells
from .checker_geometry import Point, Polygon, clip, measure_area, rectangle
from .checker_network import RationalNetwork
from .checker_property import BoxedDisjunct, find_violation, read_disjuncts
from .subject import read_subject

FORMAT, VERSION = "exactline proof", 1


@dataclass(frozen=True)
class ProofCheck:
    """The answer of `check_proof`."""

    accepted: bool
    reason: str  # why it is rejected
    disjuncts: int  # of the property
    pieces: int  # checked on lines
    cells: int  # checked on planes

    def __bool__(self) -> bool:
        """Whether the proof is accepted."""
        return self.accepted

    def __str__(self) -> str:
        if not self.accepted:
            return f"rejected: {self.reason}"
        covered = [
            count_noun(self.disjuncts, "disjunct"),
            count_noun(self.pieces, "piece"),
            count_noun(self.cells, "cell"),
        ]
        return f"accepted: no counterexample; {', '.join(covered)}"


def check_proof(
    network: Any,
    property: Any,
    proof: Any,
    *,
    shape: Sequence[int] | None = None,
    normalize: bool | None = None,
) -> ProofCheck:
    """Check a proof that a property has no counterexample.

    The network and the property are read again. Every piece and cell of the proof is checked: that its activation
    pattern holds at its corners, that no constraint can hold on it, and that all of them together cover every box.

    Args:
        network: A path, a Network, a module or an exported program.
        property: The path of a VNNLIB file, or a Property.
        proof: The path of a proof, or a Proof.
        shape: The shape of one input point, for modules and files that do not define it.
        normalize: As `verify` takes it.

    >>> import torch, exactline as xl
    >>> from exactline.verification.property import Property
    >>> below = Property.of([-1.0], [1.0], [[1.0]], [-0.5])  # is relu(x) <= -0.5 somewhere in [-1, 1]?
    >>> proof = xl.verify(torch.nn.ReLU(), below).proof
    >>> print(check_proof(torch.nn.ReLU(), below, proof))
    accepted: no counterexample; 1 disjunct, 2 pieces, 0 cells
    >>> print(check_proof(torch.nn.ReLU(), Property.of([-1.0], [1.0], [[1.0]], [0.0]), proof))
    rejected: part 0, piece 0: disjunct 0 can hold there

    Raises FileError for a file that is not a proof, and the errors of `verify` for the network and the property.
    """
    document = _read_document(proof)
    subject = read_subject(network, property, shape=shape, normalize=normalize)
    with full_precision():
        network_in_rationals = RationalNetwork(subject.network)
    checker = _Checker(network_in_rationals, read_disjuncts(subject.prop), subject.network.checksum())
    reason = ""
    try:
        checker.check(document)
    except ProofRejected as problem:
        reason = str(problem)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, ZeroDivisionError) as problem:
        reason = f"the proof is malformed: {type(problem).__name__}: {problem}"
    return ProofCheck(not reason, reason, len(checker.disjuncts), checker.pieces, checker.cells)


class _Checker:
    """Checks all parts of one proof."""

    def __init__(self, network: RationalNetwork, disjuncts: list[BoxedDisjunct], checksum: str) -> None:
        self.network, self.disjuncts, self.checksum = network, disjuncts, checksum
        self.pieces = self.cells = 0

    def check(self, document: dict[str, Any]) -> None:
        """Check the whole proof; raises ProofRejected."""
        if (document["format"], document["version"], document["result"]) != (FORMAT, VERSION, "unsat"):
            raise ProofRejected(f"it is not an {FORMAT} of version {VERSION} with the result unsat")
        if document["network"] != self.checksum:
            raise ProofRejected("it is the proof of another network")
        open_disjuncts = {d.index for d in self.disjuncts}
        for number, part in enumerate(document["parts"]):
            inputs, point = part["inputs"], [Fraction(v) for v in part["point"]]
            _check_plane(inputs, point, self.network.sizes[0])
            members = [d for d in self.disjuncts if d.index in open_disjuncts and d.lies_in(inputs, point)]
            if "pieces" in part:
                self._check_line(f"part {number}", part, inputs, point, members)
            else:
                self._check_tree(f"part {number}", part, inputs, point, members)
            open_disjuncts -= {d.index for d in members}
        if open_disjuncts:
            raise ProofRejected(f"no part has the box of disjunct {min(open_disjuncts)}")

    def _check_line(
        self, where: str, part: dict[str, Any], inputs: list[int], point: list[Fraction], members: list[BoxedDisjunct]
    ) -> None:
        """Check the pieces of a line: they follow each other, and those of every box cover it."""
        if len(inputs) != 1:
            raise ProofRejected(f"{where}: a line has one input")
        cells = RationalCells(self.network, inputs, point)
        pieces = [(_read_fraction(a), _read_fraction(b), str(pattern)) for a, b, pattern in part["pieces"]]
        forms = []
        for k, (start, end, pattern) in enumerate(pieces):
            if start > end or (k and start < pieces[k - 1][1]):
                raise ProofRejected(f"{where}, piece {k}: the pieces are not in order")
            forms.append(cells.evaluate([(start,), (end,)], pattern, f"{where}, piece {k}"))
            self.pieces += 1
        starts = [start for start, _, _ in pieces]
        for disjunct in members:
            low, high = disjunct.lower[inputs[0]], disjunct.upper[inputs[0]]
            reached = None  # the end of the pieces so far
            for k in _find_overlapping(starts, low, high):
                start, end, _ = pieces[k]
                if end < low or start > high:
                    continue
                if (reached is None and start > low) or (reached is not None and start > reached):
                    raise ProofRejected(
                        f"{where}: the pieces leave a gap before {start} in the box of disjunct {disjunct.index}"
                    )
                reached = end
                ends: list[Point] = [(max(start, low),), (min(end, high),)]
                if find_violation(disjunct, forms[k], ends):
                    raise ProofRejected(f"{where}, piece {k}: disjunct {disjunct.index} can hold there")
            if reached is None or reached < high:
                raise ProofRejected(f"{where}: the pieces do not cover the box of disjunct {disjunct.index}")

    def _check_tree(
        self, where: str, part: dict[str, Any], inputs: list[int], point: list[Fraction], members: list[BoxedDisjunct]
    ) -> None:
        """Check the cells of a plane: cuts of a rectangle that holds all boxes; their areas add up to its area."""
        if len(inputs) != 2:
            raise ProofRejected(f"{where}: a plane has two inputs")
        lower, upper = ([Fraction(v) for v in part[side]] for side in ("lower", "upper"))
        if len(lower) != 2 or len(upper) != 2:
            raise ProofRejected(f"{where}: a rectangle has two lower and two upper bounds")
        for d in members:
            if any(d.lower[i] < lower[k] or d.upper[i] > upper[k] for k, i in enumerate(inputs)):
                raise ProofRejected(f"{where}: the rectangle does not hold the box of disjunct {d.index}")
        cells = RationalCells(self.network, inputs, point)
        whole = rectangle(lower, upper)
        stack: list[Polygon] = [whole]
        total = Fraction(0)
        for number, (kind, *rest) in enumerate(part["tree"]):
            name = f"{where}, entry {number}"
            if not stack:
                raise ProofRejected(f"{name}: the tree has ended before")
            polygon = stack.pop()
            if kind == "cut":
                constant, *slopes = (int(n, 16) for n in rest)
                line = (constant, *slopes)
                stack += [clip(polygon, [-n for n in line]), clip(polygon, line)]
            else:
                total += measure_area(polygon)
                regions = [(d, d.clip_box(polygon, inputs)) for d in members]
                self._check_cell(name, [kind, *rest], polygon, [(d, r) for d, r in regions if r], cells)
        if stack or total != measure_area(whole):
            raise ProofRejected(f"{where}: the cells do not cover the rectangle")

    def _check_cell(
        self,
        name: str,
        entry: list[str],
        polygon: Polygon,
        touching: list[tuple[BoxedDisjunct, Polygon]],  # disjuncts, and the parts of the cell in their boxes
        cells: RationalCells,
    ) -> None:
        """Check one cell: it is outside of all boxes, or no disjunct can hold on it."""
        if entry == ["outside"]:
            if touching:
                raise ProofRejected(f"{name}: it is not outside of the box of disjunct {touching[0][0].index}")
            return
        kind, pattern = entry
        if kind != "cell":
            raise ProofRejected(f"{name}: {kind!r} is not a cut, a cell or outside")
        forms = cells.evaluate(polygon, pattern, name)
        self.cells += 1
        for d, region in touching:
            if find_violation(d, forms, region):
                raise ProofRejected(f"{name}: disjunct {d.index} can hold there")


def _check_plane(inputs: Any, point: list[Fraction], count: int) -> None:
    if not isinstance(inputs, list) or len(set(inputs)) != len(inputs) or len(point) != count:
        raise ProofRejected("a part's inputs or its point do not fit the network")
    if not all(isinstance(i, int) and 0 <= i < count for i in inputs):
        raise ProofRejected("a part names an input that the network does not have")
    if any(point[i] for i in inputs):
        raise ProofRejected("the point of a part is not 0 where an input is free")


def _find_overlapping(starts: list[Fraction], low: Fraction, high: Fraction) -> range:
    """The pieces that may overlap an interval."""
    return range(max(bisect_left(starts, low) - 1, 0), bisect_right(starts, high))


def _read_fraction(text: Any) -> Fraction:
    numerator, denominator = str(text).split("/")
    return Fraction(int(numerator, 16), int(denominator, 16))


def _read_document(proof: Any) -> dict[str, Any]:
    if isinstance(proof, (str, os.PathLike)):
        path = Path(proof)
        try:
            document = json.loads(read_file(path))
        except (ValueError, RecursionError) as problem:
            raise FileError(
                f"The file is not JSON: {problem}.", where=str(path), hint="Give a file of --proof."
            ) from problem
        if not isinstance(document, dict):
            raise FileError("The file is not a proof.", where=str(path), hint="Give a file of --proof.")
        return document
    return proof.document
