"""``exactline verify`` and ``exactline check-proof``: decide a property of a network, and check the proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import parse_shape
from ..console.options import NETWORK_SUFFIXES, Shape, ShowProgress
from ..console.output import print_json, print_note, print_text, require_writable
from ..console.progress_bar import show_clock

if TYPE_CHECKING:
    from ..verification.verify import VerificationResult

MAX_SHOWN_COORDINATES = 16  # of an exact point
REJECTED_STATUS = 1  # of a proof that does not hold

NetworkArgument = Annotated[Path, typer.Argument(metavar="NETWORK", help=f"A network: {NETWORK_SUFFIXES}.")]
PropertyArgument = Annotated[
    Path, typer.Argument(metavar="PROPERTY", help="What must not happen: .vnnlib, .vnnlib.gz.")
]
PropertyUnits = Annotated[
    bool | None,
    typer.Option(
        "--normalize/--no-normalize",
        help="Whether a property of a .nnet is in physical units, such as feet; default: the file's ranges decide.",
    ),
]


def verify(
    file: NetworkArgument,
    property_file: PropertyArgument,
    seconds: Annotated[float | None, typer.Option(help="Stop after this many seconds; 60 by default.")] = None,
    proof: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the proof of unsat to this file: .json, .json.gz."),
    ] = None,
    result: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the result to this file, in the VNN-COMP format.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the VNN-COMP format.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the search in boxes with more than two free inputs.")] = 0,
    normalize: PropertyUnits = None,
    shape: Shape = None,
    progress: ShowProgress = True,
) -> None:
    """Verify a property: sat with a counterexample, unsat with a proof, or unknown with the reason.

    Boxes with at most two inputs of non-zero width are decided completely; the falsifier searches larger ones.

    Example: exactline verify lindex.onnx lindex_1000.vnnlib.gz --proof lindex.json.gz
    """
    for path, option in ((proof, "--proof"), (result, "--result")):
        if path is not None:
            require_writable(path, option)
    from ..verification.verify import verify

    shapes = parse_shape(shape)
    with show_clock(progress, "verifying"):
        found = verify(file, property_file, seconds=seconds, seed=seed, shape=shapes, normalize=normalize)
    if result is not None:
        from ..files import write_atomically

        write_atomically(result, f"{found.vnncomp()}\n".encode())
        print_note(f"result saved to {result}")
    if proof is not None:
        if found.proof is None:
            print_note(f"no proof saved: the result is {found.result}")
        else:
            found.proof.save(proof)
            print_note(f"proof saved to {proof}")
    if as_json:
        print_json(_build_document(str(file), str(property_file), found))
        return
    print_text(found.vnncomp())
    print_note(str(found))
    if found.exact_point is not None and len(found.exact_point) <= MAX_SHOWN_COORDINATES:
        print_note(f"exact point: {', '.join(map(str, found.exact_point))}")


def check_proof(
    file: NetworkArgument,
    property_file: PropertyArgument,
    proof_file: Annotated[Path, typer.Argument(metavar="PROOF", help="A file of exactline verify --proof.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a sentence.")] = False,
    normalize: PropertyUnits = None,
    shape: Shape = None,
    progress: ShowProgress = True,
) -> None:
    """Check a proof of unsat in rational arithmetic, without the code that made it.

    The exit status is 0 if the proof is accepted, 1 if it is rejected.

    Example: exactline check-proof lindex.onnx lindex_1000.vnnlib.gz lindex.json.gz
    """
    from ..verification.checker import check_proof

    shapes = parse_shape(shape)
    with show_clock(progress, "checking the proof"):
        check = check_proof(file, property_file, proof_file, shape=shapes, normalize=normalize)
    if as_json:
        print_json(
            {
                "file": str(file),
                "property": str(property_file),
                "proof": str(proof_file),
                "accepted": check.accepted,
                "reason": check.reason,
                "disjuncts": check.disjuncts,
                "pieces": check.pieces,
                "cells": check.cells,
            }
        )
    else:
        print_text(str(check))
    if not check:
        raise typer.Exit(REJECTED_STATUS)


def _build_document(file: str, property_file: str, found: VerificationResult) -> dict[str, Any]:
    return {
        "file": file,
        "property": property_file,
        "result": found.result,
        "reason": found.reason,
        "x": None if found.x is None else found.x.tolist(),
        "y": None if found.y is None else found.y.tolist(),
        "disjunct": found.disjunct,
        "exact_point": None if found.exact_point is None else [str(v) for v in found.exact_point],
        "replayed_by": found.replayed_by,
        "decided": found.decided,
        "searched": found.searched,
        "pieces": found.pieces,
        "cells": found.cells,
        "seconds": found.seconds,
        "units": found.units,
        "note": found.note,
    }
