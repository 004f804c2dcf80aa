"""The ACAS Xu study as tables: lines.csv, missed.csv and report.md."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from .acas import Line, Missed, Study
from .encounter import ADVISORIES, INPUTS
from .geometry import Kind, Scene, Track

KINDS: dict[Kind, str] = {
    "single distance": "single line, distance varies",
    "single theta": "single line, bearing varies",
    "distance": "distance lines",
    "circle": "arcs of circles",
}
PLACE = ("start_alpha", "stop_alpha", "start", "stop", "start_x", "start_y", "stop_x", "stop_y")
LINES = ("kind", "line", "varies", "fixed", "interval", *PLACE, "advisory", "margin", "tied")
MISSED = ("kind", "line", "varies", "fixed", *PLACE, "length_ft", "advisory", "margin", "before", "after")
ROWS = 40  # of the report's table of missed regions; missed.csv has all


def lines_csv(study: Study) -> str:
    """Every interval of every line: alphas, rho in feet or theta in degrees, x and y of both ends, and the advice."""
    rows = (
        (*_head(line), k, *_place(line.track, s.start, s.stop), s.advisory, repr(s.margin), s.ties)
        for line in study.lines
        for k, s in enumerate(line.stretches)
    )
    return as_csv(LINES, rows)


def missed_csv(study: Study) -> str:
    """Every interval that falls between the samples of its line."""
    rows = (
        (
            *_head(m.line),
            *_place(m.line.track, m.stretch.start, m.stretch.stop),
            repr(m.line.track.length * m.stretch.width),
            m.stretch.advisory,
            repr(m.stretch.margin),
            m.before,
            m.after,
            _yes(m.unseen),
            _yes(m.off_grid),
        )
        for m in study.missed
    )
    return as_csv((*MISSED, "unseen_on_line", "unseen_on_grid"), rows)


def report(study: Study) -> str:
    """The study in words and tables, as Markdown."""
    parts = [
        "# Advice around the ownship: exact lines against samples",
        _settings(study),
        "## Definitions",
        _definitions(study.scene),
        "## Breaks per line, both ends counted",
        as_table(("lines", "count", "mean", "least", "most", "intervals"), _breaks(study)),
        "## Time",
        as_table(("part", "seconds"), ((name, f"{s:.3f}") for name, s in study.seconds.items())),
        "## The single lines",
        *(_single(line) for line in study.of("single distance", "single theta")),
        "## What sampling missed",
        _missed(study),
    ]
    return "\n\n".join(parts) + "\n"


def save(study: Study, folder: Path) -> list[Path]:
    """Write lines.csv, missed.csv and report.md into a folder, each whole or not at all."""
    texts = {"lines.csv": lines_csv(study), "missed.csv": missed_csv(study), "report.md": report(study)}
    return write_texts(folder, texts)


def _head(line: Line) -> tuple[str, int, str, str]:
    return line.track.kind, line.track.number, line.track.varies, repr(line.track.fixed)


def _place(track: Track, start: float, stop: float) -> list[str]:
    numbers = [start, stop, track.position(start), track.position(stop), *track.place(start), *track.place(stop)]
    return [repr(float(n)) for n in numbers]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def as_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def as_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(c).replace('|', '/') for c in row)} |" for row in cells)


def _settings(study: Study) -> str:
    scene, known = study.scene, study.advisor
    given = [("psi", scene.psi, "degrees"), ("v_own", scene.v_own, "ft/s"), ("v_int", scene.v_int, "ft/s")]
    ranges = ", ".join(f"{n} {a:g} to {b:g}" for n, a, b in zip(INPUTS, known.lowest, known.highest, strict=True))
    lines = [
        f"* Network: {known.name}; {known.note}; {known.network.units.get('relu', 0):,} ReLU units.",
        f"* Encounter: {', '.join(f'{n} = {v:g} {unit}' for n, v, unit in given)}.",
        f"* Inputs are clipped to their ranges first: {ranges} (feet, radians, feet per second).",
        *(f"* **{text}**" for text in clipped(study)),
    ]
    return "\n".join(lines)


def write_texts(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write files by name into a folder, each whole or not at all."""
    from ..files import write_atomically

    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]


def clipped(study: Study) -> list[str]:
    """What of the scene lies outside the ranges and was clipped, in words."""
    scene, (lowest, highest) = study.scene, (study.advisor.lowest, study.advisor.highest)
    ends = [end for line in study.lines for end in (line.track.start, line.track.stop)]
    points = scene.encounters(ends)
    outside: list[str] = []
    for i, name in enumerate(INPUTS):
        low, high = float(points[:, i].min()), float(points[:, i].max())
        if low < lowest[i] or high > highest[i]:
            outside.append(f"{name} leaves its range ({low:g} to {high:g}) and was clipped.")
    return outside


def _definitions(scene: Scene) -> str:
    x0, x1, y0, y1 = scene.box
    return "\n".join(
        (
            "* The network gives costs; the advice is the smallest: " + ", ".join(a.name for a in ADVISORIES) + ".",
            "* x = rho cos(theta) is ahead of the ownship, y = rho sin(theta) to its left; the ownship is at 0, 0 "
            f"in the box x {x0:g} to {x1:g}, y {y0:g} to {y1:g} ft.",
            f"* Distance lines: {scene.rays_count} bearings from -180 to 180 degrees, both included, rho from 0 to the "
            "edge of the box.",
            f"* Circles: {scene.circles_count} radii up to the farthest corner, cut into the arcs inside the box; "
            "along an arc theta varies, so it is a straight line of inputs.",
            f"* Single lines: rho 0 to {scene.reach:g} ft at theta = {scene.single_theta:g} degrees; theta -180 to 180 "
            f"degrees at rho = {scene.single_rho:g} ft.",
            f"* Samples: {scene.samples} on a line, evenly spread, both ends among them; the grid is {scene.grid_side} "
            f"by {scene.grid_side}.",
            "* Missed: an interval of constant advice, narrower than the spacing of the samples on its line, that "
            "holds none of them (a sample on its very edge counts as inside).",
        )
    )


def _breaks(study: Study) -> Iterable[Sequence[object]]:
    for kind, title in KINDS.items():
        lines = study.of(kind)
        if lines:
            mean, least, most = study.breaks(kind)
            yield title, len(lines), f"{mean:.1f}", least, most, sum(len(line.stretches) for line in lines)


def _single(line: Line) -> str:
    track, unit = line.track, "ft" if line.track.varies == "rho" else "degrees"
    fixed = f"theta = {track.fixed:g} degrees" if track.varies == "rho" else f"rho = {track.fixed:g} ft"
    rows = (
        (
            f"{track.position(s.start):.4f}",
            f"{track.position(s.stop):.4f}",
            s.ties or s.advisory,
            sum(s.start <= alpha <= s.stop for alpha, _ in line.samples),
        )
        for s in line.stretches
    )
    table = as_table((f"{track.varies} from ({unit})", "to", "advisory", "samples in it"), rows)
    return f"{track.varies.capitalize()} varies, {fixed}:\n\n{table}"


def _missed(study: Study) -> str:
    if not study.missed:
        return f"Nothing: every interval holds one of the {study.scene.samples} samples of its line."
    rows: list[Sequence[object]] = []
    for kind, title in KINDS.items():
        own = [m for m in study.missed if m.line.track.kind == kind]
        total = sum(len(line.stretches) for line in study.of(kind))
        rows.append((title, total, len(own), sum(m.unseen for m in own), sum(m.off_grid for m in own), _longest(own)))
    head = ("lines", "intervals", "missed", "advisory unseen on the line", "unseen on the grid", "longest missed (ft)")
    order = sorted(
        study.missed, key=lambda m: (m.line.track.kind not in ("single distance", "single theta"), -_feet(m))
    )
    shown = [_row(m) for m in order[:ROWS]]
    more = f"\n\nThe longest {ROWS} of {len(order):,}; missed.csv has all." if len(order) > ROWS else ""
    places = as_table(("line", "from", "to", "feet", "advisory", "between"), shown)
    return f"{as_table(head, rows)}\n\n{places}{more}"


def _feet(missed: Missed) -> float:
    return missed.line.track.length * missed.stretch.width


def _longest(missed: Sequence[Missed]) -> str:
    return f"{max(map(_feet, missed)):.1f}" if missed else "-"


def _row(m: Missed) -> Sequence[object]:
    track = m.line.track
    fixed = f"theta {track.fixed:.2f} degrees" if track.varies == "rho" else f"rho {track.fixed:.1f} ft"
    ends = [f"{track.varies} {track.position(a):.3f}" for a in (m.stretch.start, m.stretch.stop)]
    between = f"{m.before or 'the end'} and {m.after or 'the end'}"
    return f"{track.kind}, {fixed}", *ends, f"{_feet(m):.2f}", m.stretch.advisory, between
