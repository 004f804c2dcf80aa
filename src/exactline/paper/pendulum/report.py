"""The report of a closed loop: a table of steps as CSV, and a summary in Markdown."""

from __future__ import annotations

from pathlib import Path

from ...humanize import count_noun
from ..text_files import format_csv, format_markdown_table, write_texts
from .reach import ReachStudy

HEAD = ("step", "regions", "largest angle", "largest velocity", "area of states")


def list_rows(study: ReachStudy) -> list[tuple[int, int, float, float, float]]:
    """One row for each step."""
    return [(r.steps, len(r.plane), r.largest_angle, r.largest_velocity, r.image_area) for r in study.reached]


def describe_verdict(study: ReachStudy) -> str:
    """Whether the limit holds, in one sentence."""
    found = study.counterexample
    if found is None:
        steps = count_noun(len(study.reached), "step")
        after = steps if len(study.reached) == 1 else f"each of {steps}"
        return f"Safe: after {after} every angle is at most {study.limit:g} rad."
    step, (angle, velocity) = found
    after = count_noun(step, "step")
    return f"Not safe: from angle {angle:.6g} and velocity {velocity:.6g} the limit is exceeded after {after}."


def write_report(study: ReachStudy, folder: Path) -> list[Path]:
    """Write ``steps.csv`` and ``report.md`` into a folder."""
    rows = list_rows(study)
    (low, high), (slow, fast) = study.box
    shown = [(step, f"{regions:,}", *(f"{number:.4g}" for number in rest)) for step, regions, *rest in rows]
    text = (
        f"# A closed loop: {study.name}\n\n"
        f"First states: angles from {low:g} to {high:g} rad, velocities from {slow:g} to {fast:g} rad/s. "
        f"{describe_verdict(study)}\n\n"
        "After k steps the state is an affine function of the first state on each region. Largest values are taken at "
        "the corners of regions and hold for all states between them, up to float64 rounding.\n\n"
        f"{format_markdown_table(HEAD, shown)}\n"
    )
    return write_texts(folder, {"steps.csv": format_csv(HEAD, rows), "report.md": text})
