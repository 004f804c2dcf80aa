"""``exactline study pendulum``: the exact states of a controlled pendulum after some steps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...console.options import AsJsonTables, DrawPictures, ShowProgress, StudyFolder
from ...console.output import make_folder, print_files, print_json, print_rich, require_matplotlib
from ...console.progress_bar import show_study_progress
from ...errors import ArgumentError
from ...humanize import count_noun


def pendulum(
    steps: Annotated[int, typer.Option(help="How many steps of 50 milliseconds.")] = 20,
    angle: Annotated[float, typer.Option(help="The largest angle of the first states, in radians.")] = 0.2,
    velocity: Annotated[float, typer.Option(help="The largest velocity of the first states.")] = 0.4,
    limit: Annotated[float, typer.Option(help="The largest angle that is safe, in radians.")] = 0.3,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A folder of published networks: study the one of Cersyve instead."),
    ] = None,
    out: StudyFolder = Path("pendulum"),
    pictures: DrawPictures = True,
    as_json: AsJsonTables = False,
    progress: ShowProgress = True,
) -> None:
    """Follow all states of a controlled pendulum for some steps, and check that no angle exceeds a limit.

    Example: exactline study pendulum --steps 10 --out pendulum
    """
    for option, value in (("--steps", steps), ("--angle", angle), ("--velocity", velocity), ("--limit", limit)):
        if not 0 < value < float("inf"):
            raise ArgumentError(f"{value:g} is not above 0.", where=option, hint="Give a number above 0.")
    if pictures:
        require_matplotlib("study pendulum", ", or --no-pictures")
    from ..pendulum import bundled_step, published_step, run
    from ..pendulum.report import HEAD, describe_verdict, list_rows, write_report

    folder = make_folder(out)
    with show_study_progress(progress) as report:
        study = run(
            bundled_step() if data is None else published_step(data),
            name="bundled controller" if data is None else "Cersyve's pendulum",
            steps=steps,
            box=((-angle, angle), (-velocity, velocity)),
            limit=limit,
            progress=report,
        )
    written = write_report(study, folder)
    if pictures:
        from ..pendulum.plot import draw_figures

        written += draw_figures(study, folder)
    rows = [dict(zip(HEAD, row, strict=True)) for row in list_rows(study)]
    if as_json:
        found = study.counterexample
        counterexample = None if found is None else {"steps": found[0], "start": list(found[1])}
        document = {"safe": study.is_safe, "counterexample": counterexample, "steps": rows}
        print_json(document | {"files": [str(path) for path in written]})
    else:
        last, after = rows[-1], count_noun(len(rows), "step")
        print_rich(
            describe_verdict(study),
            f"after {after}: {last['regions']:,} regions, largest angle {last['largest angle']:.4g}",
        )
        print_files(folder, [path.name for path in written])
