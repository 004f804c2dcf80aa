"""The line study as tables: lines.csv, missed.csv and report.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..text_files import format_csv, format_markdown_table, write_texts
from .advisor import ADVISORIES
from .geometry import EncounterGeometry, Track, TrackKind
from .lines import LineAdvice, LineStudy, MissedInterval

KIND_TITLES: dict[TrackKind, str] = {
    "single distance": "single line, distance varies",
    "single theta": "single line, bearing varies",
    "distance": "distance lines",
    "circle": "arcs of circles",
}
PLACE_COLUMNS = ("start_alpha", "stop_alpha", "start", "stop", "start_x", "start_y", "stop_x", "stop_y")
LINE_COLUMNS = ("kind", "line", "varies", "fixed", "interval", *PLACE_COLUMNS, "advisory", "margin", "tied")
MISSED_COLUMNS = (
    *("kind", "line", "varies", "fixed", *PLACE_COLUMNS, "length_ft", "advisory", "margin", "before", "after"),
    *("unseen_on_line", "unseen_on_grid"),
)
MAX_MISSED_ROWS = 40  # of the report's table of missed intervals; missed.csv has all


def format_lines_csv(study: LineStudy) -> str:
    """Format every interval of every line: alphas, rho in feet or theta in degrees, x and y of both ends, advice."""
    rows = (
        (*_line_cells(line), k, *_place_cells(line.track, i.start, i.stop), i.advisory, repr(i.margin), i.tied_names)
        for line in study.lines
        for k, i in enumerate(line.intervals)
    )
    return format_csv(LINE_COLUMNS, rows)


def format_missed_csv(study: LineStudy) -> str:
    """Format every interval that lies between the samples of its line."""
    rows = (
        (
            *_line_cells(m.line),
            *_place_cells(m.line.track, m.interval.start, m.interval.stop),
            repr(m.length_feet),
            m.interval.advisory,
            repr(m.interval.margin),
            m.before,
            m.after,
            _yes_or_no(m.unseen),
            _yes_or_no(m.off_grid),
        )
        for m in study.missed
    )
    return format_csv(MISSED_COLUMNS, rows)


def format_report(study: LineStudy) -> str:
    """Format the study as Markdown."""
    parts = [
        "# Advice around the ownship: exact lines compared with samples",
        _describe_settings(study),
        "## Definitions",
        _list_definitions(study.geometry),
        "## Breaks per line, both ends counted",
        format_markdown_table(("lines", "count", "mean", "least", "most", "intervals"), _break_rows(study)),
        "## Time",
        format_markdown_table(("step", "seconds"), ((name, f"{s:.3f}") for name, s in study.seconds.items())),
        "## The single lines",
        *(_format_single_line(line) for line in study.lines_of("single distance", "single theta")),
        "## What sampling missed",
        _format_missed(study),
    ]
    return "\n\n".join(parts) + "\n"


def save_report(study: LineStudy, folder: Path) -> list[Path]:
    """Write lines.csv, missed.csv and report.md into a folder, each atomically."""
    texts = {
        "lines.csv": format_lines_csv(study),
        "missed.csv": format_missed_csv(study),
        "report.md": format_report(study),
    }
    return write_texts(folder, texts)


def describe_clipping(study: LineStudy) -> list[str]:
    """Describe which inputs leave their ranges on the lines and were clipped."""
    ends = [end for line in study.lines for end in (line.track.start, line.track.end)]
    return study.advisor.describe_clipping(study.geometry.to_inputs(ends))


def _line_cells(line: LineAdvice) -> tuple[str, int, str, str]:
    return line.track.kind, line.track.number, line.track.varies, repr(line.track.fixed_input)


def _place_cells(track: Track, start: float, stop: float) -> list[str]:
    numbers = [start, stop, track.varying_input(start), track.varying_input(stop), *track.xy(start), *track.xy(stop)]
    return [repr(float(n)) for n in numbers]


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _describe_settings(study: LineStudy) -> str:
    geometry = study.geometry
    lines = [
        f"* Network: {study.advisor.describe()}",
        f"* Encounter: psi = {geometry.psi:g} degrees, v_own = {geometry.v_own:g} ft/s, "
        f"v_int = {geometry.v_int:g} ft/s.",
        f"* {study.advisor.describe_ranges()}",
        *(f"* **{text}**" for text in describe_clipping(study)),
    ]
    return "\n".join(lines)


def _list_definitions(geometry: EncounterGeometry) -> str:
    x0, x1, y0, y1 = geometry.box
    return "\n".join(
        (
            "* The network computes costs; the advice is the cheapest of "
            + ", ".join(a.name for a in ADVISORIES)
            + ".",
            "* x = rho cos(theta) is ahead of the ownship, y = rho sin(theta) to its left; the ownship is at 0, 0 "
            f"in the box x {x0:g} to {x1:g}, y {y0:g} to {y1:g} ft.",
            f"* Distance lines: {geometry.ray_count} bearings from -180 to 180 degrees, both included, rho from 0 to "
            "the edge of the box.",
            f"* Circles: {geometry.circle_count} radii up to the farthest corner, cut into the arcs inside the box; "
            "only theta varies along an arc, so it is a straight line of inputs.",
            f"* Single lines: rho from 0 to {geometry.reach:g} ft at theta = {geometry.single_theta:g} degrees; theta "
            f"from -180 to 180 degrees at rho = {geometry.single_rho:g} ft.",
            f"* Samples: {geometry.samples} on each line, evenly spaced, both ends included; the grid is "
            f"{geometry.grid_side} by {geometry.grid_side}.",
            "* Missed: an interval of constant advice that is narrower than the spacing of the samples on its line and "
            "contains none of them (a sample exactly on its end counts as inside).",
        )
    )


def _break_rows(study: LineStudy) -> Iterable[Sequence[object]]:
    for kind, title in KIND_TITLES.items():
        lines = study.lines_of(kind)
        if lines:
            mean, least, most = study.break_statistics(kind)
            yield title, len(lines), f"{mean:.1f}", least, most, sum(len(line.intervals) for line in lines)


def _format_single_line(line: LineAdvice) -> str:
    track, unit = line.track, "ft" if line.track.varies == "rho" else "degrees"
    fixed = f"theta = {track.fixed_input:g} degrees" if track.varies == "rho" else f"rho = {track.fixed_input:g} ft"
    rows = (
        (
            f"{track.varying_input(i.start):.4f}",
            f"{track.varying_input(i.stop):.4f}",
            i.tied_names or i.advisory,
            sum(i.start <= alpha <= i.stop for alpha, _ in line.samples),
        )
        for i in line.intervals
    )
    table = format_markdown_table((f"{track.varies} from ({unit})", "to", "advisory", "samples in it"), rows)
    return f"{track.varies.capitalize()} varies, {fixed}:\n\n{table}"


def _format_missed(study: LineStudy) -> str:
    if not study.missed:
        return f"Nothing: every interval contains one of the {study.geometry.samples} samples of its line."
    rows: list[Sequence[object]] = []
    for kind, title in KIND_TITLES.items():
        own = [m for m in study.missed if m.line.track.kind == kind]
        total = sum(len(line.intervals) for line in study.lines_of(kind))
        longest = f"{max(m.length_feet for m in own):.1f}" if own else "-"
        rows.append((title, total, len(own), sum(m.unseen for m in own), sum(m.off_grid for m in own), longest))
    head = ("lines", "intervals", "missed", "advisory unseen on the line", "unseen on the grid", "longest missed (ft)")
    order = sorted(
        study.missed, key=lambda m: (m.line.track.kind not in ("single distance", "single theta"), -m.length_feet)
    )
    listed = format_markdown_table(
        ("line", "from", "to", "feet", "advisory", "between"), map(_format_missed_cells, order[:MAX_MISSED_ROWS])
    )
    more = f"\n\nThe longest {MAX_MISSED_ROWS} of {len(order):,}; missed.csv lists all." * (
        len(order) > MAX_MISSED_ROWS
    )
    return f"{format_markdown_table(head, rows)}\n\n{listed}{more}"


def _format_missed_cells(m: MissedInterval) -> Sequence[object]:
    track = m.line.track
    fixed = f"theta {track.fixed_input:.2f} degrees" if track.varies == "rho" else f"rho {track.fixed_input:.1f} ft"
    ends = [f"{track.varies} {track.varying_input(a):.3f}" for a in (m.interval.start, m.interval.stop)]
    between = f"{m.before or 'the end'} and {m.after or 'the end'}"
    return f"{track.kind}, {fixed}", *ends, f"{m.length_feet:.2f}", m.interval.advisory, between
