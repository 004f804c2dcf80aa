"""Planes that break such code: ties, odd polygons, huge and tiny sizes, small memory, damaged files."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network import as_network
from exactline.results.plane import PlaneRestriction
from tests.engines.polygons import checks
from tests.engines.polygons.families import FAMILIES, LATTICES, WEIGHTS, polygon
from tests.oracle.families import pick

from .classes import exact_regions, ring_area, unit_area, winding
from .truth import Function, dense, mlp, refused, relus

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
QUICK, ALL = range(0, 38, 7), range(400)  # networks whose regions are compared


def holds(plane: PlaneRestriction, vertices: Tensor, lines: int = 5) -> None:
    """A mesh of convex polygons that fills the whole, with the network's values."""
    generator = torch.Generator().manual_seed(0)
    assert plane.network is not None
    checks.fills_the_whole(plane, vertices)
    checks.is_convex(plane)
    checks.edges_fit(plane)
    checks.is_disjoint(plane, generator)
    checks.equals_the_network(plane, plane.network, vertices, generator, 500)
    checks.lines_agree(plane, plane.network, vertices, generator, lines)


def regions_are_true(network: Any, vertices: Tensor, order: str, seed: int) -> None:
    """Regions, ties and areas are those of the rationals, and rings go once around each point."""
    plane = xl.restrict_plane(network, vertices)
    decided = plane.decisions(order)
    unit = unit_area(vertices)
    truth = sorted((t.group, float(t.area) * unit) for t in exact_regions(network, vertices, order))
    found = sorted((r.tied or (r.label,), r.area) for r in decided)
    assert [group for group, _ in found] == [group for group, _ in truth]
    assert all(abs(a - b) <= 1e-10 * plane.area for (_, a), (_, b) in zip(found, truth, strict=True))
    for region in decided:
        areas = [ring_area(ring) for ring in region.rings]
        assert areas[0] > 0
        assert all(area < 0 for area in areas[1:])
        assert abs(sum(areas) - region.area) <= 1e-12 * plane.area
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(200, len(vertices), generator=generator, dtype=torch.float64)
    places = (weights / weights.sum(1, keepdim=True)) @ plane.outline
    around = torch.stack([torch.stack([winding(q, places) for q in r.rings]).sum(0) for r in decided], 1)
    assert bool(((around == 0) | (around == 1)).all() and (around.sum(1) == 1).all())
    values = plane.at(places)
    assert isinstance(values, Tensor)
    signed = values.flatten(1) * (1 if order == "max" else -1)
    for region, here in zip(decided, around.T.bool(), strict=True):
        gap = signed[here].amax(1, keepdim=True) - signed[here][:, list(region.tied or (region.label,))]
        assert bool((gap <= 1e-9 * (1 + signed.abs().max())).all())


def decided(seed: int) -> None:
    """Regions of one network; what fails says which."""
    generator = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[list(FAMILIES)[seed % len(FAMILIES)]](generator)
    width = model.eval()(torch.zeros(1, *shape)).shape[1]
    model = nn.Sequential(model, nn.Linear(width, pick(generator, 3, 5)), *([nn.ReLU()] if seed % 3 else []))
    WEIGHTS[list(WEIGHTS)[(seed // len(FAMILIES) + seed) % len(WEIGHTS)]](generator, model)
    vertices = polygon(generator, ["random", *LATTICES][(seed // 3) % (1 + len(LATTICES))], shape)
    network = as_network(model.eval(), [vertices[0]])
    try:
        regions_are_true(network, vertices, ("max", "min")[seed % 2], seed)
    except AssertionError as wrong:
        raise AssertionError(f"seed {seed}: {wrong}") from wrong


def test_regions_are_those_of_the_rationals_on_networks_full_of_ties():
    for seed in QUICK:
        decided(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_regions_of_hundreds_of_networks():
    for seed in ALL:
        decided(seed)


def test_a_region_with_a_hole_by_hand():
    size = Function(lambda x: x.abs().sum(1, keepdim=True))
    model = Function(lambda x: torch.cat([1 - size(x), 0 * x[:, :1] + 0.5, size(x) - 1], 1))
    decided = xl.restrict_plane(model, SQUARE).decisions()
    told = [(r.label, r.area, [ring_area(ring) for ring in r.rings]) for r in decided]
    assert told == [(1, 3.0, [3.5, -0.5]), (0, 0.5, [0.5]), *[(2, 0.125, [0.125])] * 4]


def test_outputs_that_tie_along_whole_polygons_by_hand():
    # relu(x), relu(y), 0: three tie where both are negative
    decided = xl.restrict_plane(Function(lambda x: torch.relu(torch.cat([x, -1 - x[:, :1]], 1))), SQUARE).decisions()
    assert sorted((r.label, r.tied, r.area) for r in decided) == [(0, (), 1.5), (0, (0, 1, 2), 1.0), (1, (), 1.5)]
    smallest = xl.restrict_plane(nn.ReLU(), SQUARE).decisions("min")
    assert sorted((r.label, r.tied, r.area) for r in smallest) == [
        (0, (), 1.5),
        (0, (0, 1), 1.0),
        (1, (), 1.5),
    ]


def test_constant_outputs_are_one_region():
    model = relus(dense([[1.0, 0.0], [0.0, 1.0]]), dense([[0.0, 0.0]] * 3, [1.0, 1.0, 1.0]))
    (region,) = xl.restrict_plane(model, SQUARE).decisions()
    assert (region.label, region.tied, region.area, len(region.rings)) == (0, (0, 1, 2), 4.0, 1)


def test_classes_that_touch_at_corners_only_stay_apart():
    def board(x: Tensor) -> Tensor:
        one, two = ((x.abs() - 0.5).abs() - 0.25).split(1, 1)
        a = torch.maximum(torch.minimum(one, two), torch.minimum(-one, -two))
        return torch.cat([a, -a], 1)

    decided = xl.restrict_plane(Function(board), SQUARE).decisions()
    assert len(decided) == 25
    assert all(len(r.rings) == 1 for r in decided)
    assert decided.totals == {0: 2.0, 1: 2.0}


def test_every_edge_is_born_where_its_unit_meets_its_knot():
    model = nn.Sequential(mlp(3, 12, 9, dtype=torch.float64), nn.Hardtanh(-0.3, 0.3), nn.Linear(9, 8).double())
    model = nn.Sequential(model, nn.LeakyReLU(0.1), nn.Linear(8, 2).double())
    plane = xl.restrict_plane(model, torch.randn(3, 3, dtype=torch.float64) * 3)
    assert plane.network is not None
    ends = plane.weights[plane.edges].reshape(-1, 3)
    index = {node.name: i for i, node in enumerate(plane.network.nodes)}
    feeds = {name: plane.network.nodes[i].inputs[0] for name, i in index.items() if i in plane.network.breaking}
    found = plane.network.evaluate(plane.input_points(ends), list(feeds.values()))
    knots = {"relu": [0.0], "hardtanh": [-0.3, 0.3], "leaky_relu": [0.0]}
    seen = set()
    for edge, birth in enumerate(plane.origins):
        if birth is not None:
            seen.add(birth.node)
            pair = found[feeds[birth.node]][2 * edge : 2 * edge + 2, birth.unit]
            assert min(float((pair - knot).abs().max()) for knot in knots[birth.node]) <= 1e-12
    assert seen == set(knots)


@pytest.mark.parametrize("memory", [1, 30_000])
def test_memory_changes_nothing_but_the_order(memory: int):
    model = mlp(2, 30, 30, 4, dtype=torch.float64)
    free, bound = xl.restrict_plane(model, SQUARE), xl.restrict_plane(model, SQUARE, memory=memory)
    holds(bound, SQUARE)
    assert np.array_equal(np.sort(free.areas.numpy()), np.sort(bound.areas.numpy()))
    assert len(free.weights) == len(bound.weights)
    assert sorted(map(tuple, free.origin_table.tolist())) == sorted(map(tuple, bound.origin_table.tolist()))
    one, two = free.decisions(), bound.decisions()
    assert [r.label for r in one] == [r.label for r in two]
    assert all(abs(a.area - b.area) <= 1e-13 for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("corners", [100, 400])
def test_polygons_of_many_corners(corners: int):
    angle = torch.arange(corners, dtype=torch.float64) / corners * 2 * torch.pi
    vertices = torch.stack([angle.cos(), angle.sin()], 1)
    plane = xl.restrict_plane(mlp(2, 8, 3, dtype=torch.float64), vertices)
    holds(plane, vertices)
    assert abs(sum(plane.decisions().totals.values()) - plane.area) <= 1e-12


def test_a_corner_amid_a_side_changes_nothing():
    more = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [0.25, 1], [-1, 1], [-1, 0.1]], dtype=torch.float64)
    model = mlp(2, 12, 12, 3, dtype=torch.float64)
    plane, plain = xl.restrict_plane(model, more), xl.restrict_plane(model, SQUARE)
    holds(plane, more)
    assert len(plane) == len(plain)


def test_cones_with_their_tip_at_a_corner_or_amid_a_side():
    model = mlp(2, 12, 12, 3, bias=False, dtype=torch.float64)
    for rows in ([[0.0, 0], [1, 0], [0, 1]], [[-1.0, 0], [1, 0], [0, 1]]):
        vertices = torch.tensor(rows, dtype=torch.float64)
        plane = xl.restrict_plane(model, vertices)
        holds(plane, vertices)
        assert plane.ambiguous == 0


@pytest.mark.parametrize("size", [1e300, 1e160, 1e-160, 1e-300])
def test_planes_of_any_size_are_cut_alike(size: float):
    plane = xl.restrict_plane(nn.ReLU(), SQUARE * size)
    assert plane.shares.tolist() == [0.25] * 4
    assert len(plane.line(plane.outline[0], plane.outline[2])) == 2
    decided = plane.decisions()
    assert sorted((r.label, r.tied) for r in decided) == [(0, ()), (0, (0, 1)), (1, ())]
    assert not any(np.isnan(area) for area in decided.totals.values())


def test_far_from_the_origin_distances_keep_their_digits():
    vertices = SQUARE * 2.0**-10 + 2.0**20 + 1 / 3
    plane = xl.restrict_plane(dense([[1.0, 2.0]]), vertices)
    assert torch.equal(plane.outline, vertices - vertices[0])
    assert xl.plane_through([0.0, 0.0], [1e-308, 0.0], [0.0, 1e-308], margin=0.0).isfinite().all()


def test_equal_rivals_in_windows_are_not_called_unresolved():
    pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), pool, nn.Flatten(), nn.Linear(18, 3)).double()
    vertices = torch.randn(3, 1, 5, 5, dtype=torch.float64)
    plane = xl.restrict_plane(model, vertices)
    holds(plane, vertices)
    assert plane.ambiguous == 0


def test_a_unit_that_is_nothing_but_rounding_is_called_unresolved():
    # As real numbers the floats 0.1, 0.2 and -0.3 sum to 2.8e-17: far below the rounding of the sum, and never zero,
    # whether or not a processor fuses its multiplications and additions.
    weight = torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64)
    inside = torch.tensor([[1.0, 1.0, 1.0], [2.0, -1.0, 0.0]], dtype=torch.float64)
    model = relus(dense(torch.cat([weight, torch.eye(3, dtype=torch.float64)]), [0.0] * 4), dense([[1.0] * 4]))
    assert xl.restrict_plane(model, (SQUARE + 3) @ inside).ambiguous > 0


def test_part_of_a_network_is_checked_against_itself(tmp_path: Path):
    model = mlp(2, 9, 6, 3, dtype=torch.float64)
    plane = xl.restrict_plane(model, SQUARE, until="2")
    assert plane.check().worst <= 1e-12
    assert xl.restrict(model, SQUARE[0], SQUARE[2], until="2").check().worst <= 1e-12
    plane.save(tmp_path / "part.safetensors")
    assert PlaneRestriction.load(tmp_path / "part.safetensors", model).check().worst <= 1e-12


def test_float32_planes_say_so_and_are_near():
    model = mlp(2, 12, 12, 3)
    plane, better = (xl.restrict_plane(model, SQUARE, dtype=t) for t in (torch.float32, torch.float64))
    assert plane.stored_values is not None
    assert plane.stored_values[0].dtype == torch.float32
    assert plane.check().worst <= 1e-5
    assert abs(float(plane.areas.sum()) - 4) <= 1e-10
    ours, theirs = plane.decisions().totals, better.decisions().totals
    assert ours.keys() == theirs.keys()
    assert all(abs(ours[k] - theirs[k]) <= 1e-4 for k in ours)


def test_outputs_of_no_numbers_and_networks_without_breaks():
    empty = xl.restrict_plane(nn.Sequential(nn.ReLU(), Function(lambda x: x[:, :0])), SQUARE)
    assert torch.as_tensor(empty.at([[1.0, 1.0]])).shape == (1, 0)
    refused(xl.MissingError, empty.decisions)
    plane = xl.restrict_plane(dense([[1.0, 0.0], [0.0, 1.0]]), SQUARE)
    assert (len(plane), len(plane.decisions())) == (1, 2)
    assert plane.check().worst <= 1e-14


def test_calls_at_the_same_time_do_not_disturb_each_other():
    model = mlp(2, 16, 16, 3, dtype=torch.float64)
    first = xl.restrict_plane(model, SQUARE)
    found: list[bool] = []

    def ask() -> None:
        plane = xl.restrict_plane(model, SQUARE)
        same = torch.equal(plane.weights, first.weights) and torch.equal(plane.rings, first.rings)
        found.append(same and len(first.decisions()) == len(plane.decisions()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_an_interrupted_cut_leaves_settings_as_they_were():
    def stop(*told: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        xl.restrict_plane(mlp(2, 9, 3), SQUARE, progress=stop)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "call",
    [
        lambda: xl.restrict_plane(nn.ReLU(), torch.zeros(3, 0)),
        lambda: xl.restrict_plane(nn.ReLU(), SQUARE * 1.7e308),
        lambda: xl.grid(nn.ReLU(), [0.0, 0.0], box=((-1.7e308, 1.7e308), (0, 1e308))),
        lambda: xl.grid(nn.ReLU(), [0.0, 0.0], box=((-1, 1), (-1e-10, 1e-10))),
        lambda: xl.grid(nn.ReLU(), [0.0, 0.0], axes=(0.5, 1.5), box=((-1, 1), (-1, 1))),
        lambda: xl.grid(nn.ReLU(), [0.0, 0.0], axes=(False, True), box=((-1, 1), (-1, 1))),
        lambda: xl.grid(nn.ReLU(), [0.0, 0.0], axes="01", box=((-1, 1), (-1, 1))),  # type: ignore[arg-type]
        lambda: xl.restrict_plane(nn.ReLU(), SQUARE).coordinates("ab"),
        lambda: xl.restrict_plane(nn.ReLU(), SQUARE).coordinates(None),
        lambda: xl.restrict_plane(nn.ReLU(), SQUARE).coordinates([[0.0, float("nan")]]),
    ],
)
def test_what_makes_no_plane_or_point_is_refused(call: Any):
    refused(xl.PlaneError, call)


@pytest.mark.parametrize("samples", [-1, 1.5, True, None])
def test_samples_that_are_no_number_are_refused(samples: Any):
    refused(xl.ArgumentError, xl.restrict_plane(nn.ReLU(), SQUARE).check, samples)
    refused(xl.ArgumentError, xl.restrict(nn.ReLU(), SQUARE[0], SQUARE[2]).check, samples)


def test_the_number_of_a_polygon_may_come_from_locate():
    plane = xl.restrict_plane(nn.ReLU(), SQUARE)
    assert plane.polygon(plane.locate([[1.5, 1.5]])[0]).centre.tolist() == [1.5, 1.5]  # type: ignore[arg-type]


def damaged(arrays: dict[str, Any], name: str, how: str) -> dict[str, Any] | None:
    """The same arrays, one of them spoilt; None where this way does nothing."""
    made = {k: v.copy() for k, v in arrays.items()}
    x = made[name]
    match how:
        case "missing":
            del made[name]
        case "short":
            made[name] = x[:-1]
        case "zero":
            made[name] = x * 0
        case "turned":
            made[name] = np.ascontiguousarray(x[::-1])
        case "int32":
            made[name] = x.astype(np.int32)
        case "negative":
            x.flat[0] = -7
        case "huge":
            x.flat[0] = 2**62
        case _:
            x[0] = x[1]
    same = name in made and made[name].dtype == arrays[name].dtype and np.array_equal(made[name], arrays[name])
    return None if same else made


def used(plane: PlaneRestriction) -> None:
    """Ask everything; only our own errors may come."""
    plane.at([[0.1, 0.1]])
    plane.decisions()
    plane.line([0.1, 0.1], [1.0, 1.0])
    plane.check(10)
    str(plane)
    list(plane.origins)


def test_damaged_files_are_refused_or_harmless(tmp_path: Path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    model, good, bad = mlp(2, 5, 3, dtype=torch.float64), tmp_path / "good", tmp_path / "bad"
    xl.restrict_plane(model, SQUARE).save(good)
    arrays = load_file(good)
    with safe_open(good, "np") as file:
        header = file.metadata()
    ways = ("missing", "short", "zero", "turned", "int32", "negative", "huge", "twice")
    files = [(made, header) for name in arrays for how in ways if (made := damaged(arrays, name, how)) is not None]
    facts = json.loads(header["facts"])
    for key in facts:
        files += [(arrays, header | {"facts": json.dumps(facts | {key: v})}) for v in (None, -1, "x", [], {}, 1e400)]
        files += [(arrays, header | {"facts": json.dumps({k: v for k, v in facts.items() if k != key})})]
    count = 0
    for made, said in files:
        save_file(made, bad, metadata=said)
        try:
            used(PlaneRestriction.load(bad, model))
        except xl.ExactlineError:
            count += 1
    assert count >= 0.8 * len(files)
    raw = good.read_bytes()
    for at in range(0, len(raw), len(raw) // 40):
        bad.write_bytes(raw[:at])
        refused(xl.FileError, PlaneRestriction.load, bad)


@pytest.mark.parametrize("size", ["1e200", "1e-200"])
def test_the_command_has_valid_json_and_pages_for_planes_of_any_size(size: str, tmp_path: Path, monkeypatch: Any):
    from typer.testing import CliRunner

    from exactline.cli import app

    monkeypatch.chdir(tmp_path)
    as_network(mlp(2, 4, 3), [torch.zeros(2)]).save("n.onnx")
    box = ["--base", "0,0", "--axes", "0,1", "--box", f"-{size},{size},-{size},{size}"]
    names = ["--labels", "<script>x</script>,</script><b>,[red]$^"]
    found = CliRunner().invoke(app, ["plane", "n.onnx", *box, *names, "--json", "--html", "p.html", "--plot", "p.svg"])
    assert found.exit_code == 0, found.output

    def no_constants(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    said = json.loads(found.stdout.splitlines()[-1], parse_constant=no_constants)
    assert abs(sum(row["share"] for row in said["classes"]) - 1) <= 1e-12
    page = Path("p.html").read_text()
    assert "<script>x" not in page
    assert "</script><b>" not in page
