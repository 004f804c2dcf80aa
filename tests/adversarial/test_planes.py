"""Unusual planes: ties, unusual polygons, huge and tiny sizes, little memory, damaged files."""

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
from tests.engines.polygons.families import FAMILIES, LATTICE_POLYGONS, WEIGHT_KINDS, make_polygon
from tests.oracle.families import pick

from .region_oracle import exact_regions, ring_area, unit_area, winding_numbers
from .truth import Function, assert_refused, linear_layer, mlp, relu_network

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
FAST_SEEDS, ALL_SEEDS = range(0, 38, 7), range(400)  # of networks whose regions are compared with the oracle


def assert_valid_mesh(plane: PlaneRestriction, vertices: Tensor, line_count: int = 5) -> None:
    """The polygons are convex, fill the whole and have the network's values."""
    generator = torch.Generator().manual_seed(0)
    assert plane.network is not None
    checks.check_areas(plane, vertices)
    checks.check_convexity(plane)
    checks.check_edges(plane)
    checks.check_disjoint(plane, generator)
    checks.check_values(plane, plane.network, vertices, generator, 500)
    checks.check_lines(plane, plane.network, vertices, generator, line_count)


def assert_regions_match_oracle(network: Any, vertices: Tensor, order: str, seed: int) -> None:
    """Regions, ties and areas are those of the rational oracle, and every point is inside exactly one region."""
    plane = xl.restrict_plane(network, vertices)
    regions = plane.decisions(order)
    unit = unit_area(vertices)
    truth = sorted((t.group, float(t.area) * unit) for t in exact_regions(network, vertices, order))
    computed = sorted((r.tied or (r.label,), r.area) for r in regions)
    assert [group for group, _ in computed] == [group for group, _ in truth]
    assert all(abs(a - b) <= 1e-10 * plane.area for (_, a), (_, b) in zip(computed, truth, strict=True))
    for region in regions:
        areas = [ring_area(ring) for ring in region.rings]
        assert areas[0] > 0
        assert all(area < 0 for area in areas[1:])
        assert abs(sum(areas) - region.area) <= 1e-12 * plane.area
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(200, len(vertices), generator=generator, dtype=torch.float64)
    places = (weights / weights.sum(1, keepdim=True)) @ plane.outline
    around = torch.stack([torch.stack([winding_numbers(q, places) for q in r.rings]).sum(0) for r in regions], 1)
    assert bool(((around == 0) | (around == 1)).all() and (around.sum(1) == 1).all())
    values = plane.at(places)
    assert isinstance(values, Tensor)
    signed = values.flatten(1) * (1 if order == "max" else -1)
    for region, here in zip(regions, around.T.bool(), strict=True):
        gap = signed[here].amax(1, keepdim=True) - signed[here][:, list(region.tied or (region.label,))]
        assert bool((gap <= 1e-9 * (1 + signed.abs().max())).all())


def check_regions_of_random_network(seed: int) -> None:
    """Compare the regions of one random network with the oracle; a failure names the seed."""
    generator = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[list(FAMILIES)[seed % len(FAMILIES)]](generator)
    width = model.eval()(torch.zeros(1, *shape)).shape[1]
    model = nn.Sequential(model, nn.Linear(width, pick(generator, 3, 5)), *([nn.ReLU()] if seed % 3 else []))
    WEIGHT_KINDS[list(WEIGHT_KINDS)[(seed // len(FAMILIES) + seed) % len(WEIGHT_KINDS)]](generator, model)
    vertices = make_polygon(generator, ["random", *LATTICE_POLYGONS][(seed // 3) % (1 + len(LATTICE_POLYGONS))], shape)
    network = as_network(model.eval(), [vertices[0]])
    try:
        assert_regions_match_oracle(network, vertices, ("max", "min")[seed % 2], seed)
    except AssertionError as wrong:
        raise AssertionError(f"seed {seed}: {wrong}") from wrong


def test_regions_match_the_rational_oracle_on_networks_full_of_ties():
    for seed in FAST_SEEDS:
        check_regions_of_random_network(seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_regions_of_hundreds_of_networks():
    for seed in ALL_SEEDS:
        check_regions_of_random_network(seed)


def test_a_region_with_a_hole_derived_by_hand():
    size = Function(lambda x: x.abs().sum(1, keepdim=True))
    model = Function(lambda x: torch.cat([1 - size(x), 0 * x[:, :1] + 0.5, size(x) - 1], 1))
    regions = xl.restrict_plane(model, SQUARE).decisions()
    summary = [(r.label, r.area, [ring_area(ring) for ring in r.rings]) for r in regions]
    assert summary == [(1, 3.0, [3.5, -0.5]), (0, 0.5, [0.5]), *[(2, 0.125, [0.125])] * 4]


def test_outputs_that_tie_on_whole_polygons_derived_by_hand():
    # relu(x), relu(y), 0: all three tie where x and y are negative
    regions = xl.restrict_plane(Function(lambda x: torch.relu(torch.cat([x, -1 - x[:, :1]], 1))), SQUARE).decisions()
    assert sorted((r.label, r.tied, r.area) for r in regions) == [(0, (), 1.5), (0, (0, 1, 2), 1.0), (1, (), 1.5)]
    smallest = xl.restrict_plane(nn.ReLU(), SQUARE).decisions("min")
    assert sorted((r.label, r.tied, r.area) for r in smallest) == [
        (0, (), 1.5),
        (0, (0, 1), 1.0),
        (1, (), 1.5),
    ]


def test_constant_outputs_are_one_region():
    model = relu_network(linear_layer([[1.0, 0.0], [0.0, 1.0]]), linear_layer([[0.0, 0.0]] * 3, [1.0, 1.0, 1.0]))
    (region,) = xl.restrict_plane(model, SQUARE).decisions()
    assert (region.label, region.tied, region.area, len(region.rings)) == (0, (0, 1, 2), 4.0, 1)


def test_regions_that_share_only_corners_are_not_merged():
    def board(x: Tensor) -> Tensor:
        one, two = ((x.abs() - 0.5).abs() - 0.25).split(1, 1)
        a = torch.maximum(torch.minimum(one, two), torch.minimum(-one, -two))
        return torch.cat([a, -a], 1)

    regions = xl.restrict_plane(Function(board), SQUARE).decisions()
    assert len(regions) == 25
    assert all(len(r.rings) == 1 for r in regions)
    assert regions.totals == {0: 2.0, 1: 2.0}


def test_along_every_edge_the_unit_of_its_origin_is_on_its_knot():
    model = nn.Sequential(mlp(3, 12, 9, dtype=torch.float64), nn.Hardtanh(-0.3, 0.3), nn.Linear(9, 8).double())
    model = nn.Sequential(model, nn.LeakyReLU(0.1), nn.Linear(8, 2).double())
    plane = xl.restrict_plane(model, torch.randn(3, 3, dtype=torch.float64) * 3)
    assert plane.network is not None
    ends = plane.weights[plane.edges].reshape(-1, 3)
    index = {node.name: i for i, node in enumerate(plane.network.nodes)}
    sources = {name: plane.network.nodes[i].inputs[0] for name, i in index.items() if i in plane.network.breaking_nodes}
    values = plane.network.evaluate(plane.input_points(ends), list(sources.values()))
    knots = {"relu": [0.0], "hardtanh": [-0.3, 0.3], "leaky_relu": [0.0]}
    seen = set()
    for edge, origin in enumerate(plane.origins):
        if origin is not None:
            seen.add(origin.node)
            pair = values[sources[origin.node]][2 * edge : 2 * edge + 2, origin.unit]
            assert min(float((pair - knot).abs().max()) for knot in knots[origin.node]) <= 1e-12
    assert seen == set(knots)


@pytest.mark.parametrize("memory", [1, 30_000])
@pytest.mark.every(2)
def test_the_memory_limit_changes_only_the_order_of_polygons(memory: int):
    model = mlp(2, 30, 30, 4, dtype=torch.float64)
    free, bound = xl.restrict_plane(model, SQUARE), xl.restrict_plane(model, SQUARE, memory=memory)
    assert_valid_mesh(bound, SQUARE)
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
    assert_valid_mesh(plane, vertices)
    assert abs(sum(plane.decisions().totals.values()) - plane.area) <= 1e-12


def test_an_additional_corner_on_a_side_does_not_change_the_polygons():
    more = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [0.25, 1], [-1, 1], [-1, 0.1]], dtype=torch.float64)
    model = mlp(2, 12, 12, 3, dtype=torch.float64)
    plane, plain = xl.restrict_plane(model, more), xl.restrict_plane(model, SQUARE)
    assert_valid_mesh(plane, more)
    assert len(plane) == len(plain)


def test_cones_with_their_apex_at_a_corner_or_on_a_side():
    model = mlp(2, 12, 12, 3, bias=False, dtype=torch.float64)
    for rows in ([[0.0, 0], [1, 0], [0, 1]], [[-1.0, 0], [1, 0], [0, 1]]):
        vertices = torch.tensor(rows, dtype=torch.float64)
        plane = xl.restrict_plane(model, vertices)
        assert_valid_mesh(plane, vertices)
        assert plane.ambiguous == 0


@pytest.mark.parametrize("size", [1e300, 1e160, 1e-160, 1e-300])
def test_planes_of_any_size_have_the_same_polygons(size: float):
    plane = xl.restrict_plane(nn.ReLU(), SQUARE * size)
    assert plane.shares.tolist() == [0.25] * 4
    assert len(plane.line(plane.outline[0], plane.outline[2])) == 2
    regions = plane.decisions()
    assert sorted((r.label, r.tied) for r in regions) == [(0, ()), (0, (0, 1)), (1, ())]
    assert not any(np.isnan(area) for area in regions.totals.values())


def test_plane_coordinates_are_exact_far_from_the_origin():
    vertices = SQUARE * 2.0**-10 + 2.0**20 + 1 / 3
    plane = xl.restrict_plane(linear_layer([[1.0, 2.0]]), vertices)
    assert torch.equal(plane.outline, vertices - vertices[0])
    assert xl.plane_through([0.0, 0.0], [1e-308, 0.0], [0.0, 1e-308], margin=0.0).isfinite().all()


def test_duplicate_elements_of_windows_are_not_ambiguous():
    pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), pool, nn.Flatten(), nn.Linear(18, 3)).double()
    vertices = torch.randn(3, 1, 5, 5, dtype=torch.float64)
    plane = xl.restrict_plane(model, vertices)
    assert_valid_mesh(plane, vertices)
    assert plane.ambiguous == 0


def test_a_unit_whose_values_are_only_rounding_is_ambiguous():
    # As real numbers the floats 0.1, 0.2 and -0.3 sum to 2.8e-17: far below the rounding of the sum, and never zero,
    # whether or not a processor fuses its multiplications and additions.
    weight = torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64)
    inside = torch.tensor([[1.0, 1.0, 1.0], [2.0, -1.0, 0.0]], dtype=torch.float64)
    model = relu_network(
        linear_layer(torch.cat([weight, torch.eye(3, dtype=torch.float64)]), [0.0] * 4), linear_layer([[1.0] * 4])
    )
    assert xl.restrict_plane(model, (SQUARE + 3) @ inside).ambiguous > 0


def test_the_check_of_a_truncated_network_compares_with_that_part(tmp_path: Path):
    model = mlp(2, 9, 6, 3, dtype=torch.float64)
    plane = xl.restrict_plane(model, SQUARE, until="2")
    assert plane.check().worst <= 1e-12
    assert xl.restrict(model, SQUARE[0], SQUARE[2], until="2").check().worst <= 1e-12
    plane.save(tmp_path / "part.safetensors")
    assert PlaneRestriction.load(tmp_path / "part.safetensors", model).check().worst <= 1e-12


def test_float32_planes_have_float32_values_and_small_errors():
    model = mlp(2, 12, 12, 3)
    plane, better = (xl.restrict_plane(model, SQUARE, dtype=t) for t in (torch.float32, torch.float64))
    assert plane.stored_values is not None
    assert plane.stored_values[0].dtype == torch.float32
    assert plane.check().worst <= 1e-5
    assert abs(float(plane.areas.sum()) - 4) <= 1e-10
    ours, theirs = plane.decisions().totals, better.decisions().totals
    assert ours.keys() == theirs.keys()
    assert all(abs(ours[k] - theirs[k]) <= 1e-4 for k in ours)


def test_empty_outputs_and_networks_without_breaks():
    empty = xl.restrict_plane(nn.Sequential(nn.ReLU(), Function(lambda x: x[:, :0])), SQUARE)
    assert torch.as_tensor(empty.at([[1.0, 1.0]])).shape == (1, 0)
    assert_refused(xl.MissingError, empty.decisions)
    plane = xl.restrict_plane(linear_layer([[1.0, 0.0], [0.0, 1.0]]), SQUARE)
    assert (len(plane), len(plane.decisions())) == (1, 2)
    assert plane.check().worst <= 1e-14


def test_concurrent_calls_do_not_affect_each_other():
    model = mlp(2, 16, 16, 3, dtype=torch.float64)
    first = xl.restrict_plane(model, SQUARE)
    results: list[bool] = []

    def compare() -> None:
        plane = xl.restrict_plane(model, SQUARE)
        same = torch.equal(plane.weights, first.weights) and torch.equal(plane.rings, first.rings)
        results.append(same and len(first.decisions()) == len(plane.decisions()))

    threads = [threading.Thread(target=compare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


def test_an_interrupted_sweep_restores_settings():
    def stop(*progress: object) -> None:
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
def test_invalid_planes_and_points_are_refused(call: Any):
    assert_refused(xl.PlaneError, call)


@pytest.mark.parametrize("samples", [-1, 1.5, True, None])
def test_invalid_numbers_of_samples_are_refused(samples: Any):
    assert_refused(xl.ArgumentError, xl.restrict_plane(nn.ReLU(), SQUARE).check, samples)
    assert_refused(xl.ArgumentError, xl.restrict(nn.ReLU(), SQUARE[0], SQUARE[2]).check, samples)


def test_the_index_of_a_polygon_may_be_a_tensor_from_locate():
    plane = xl.restrict_plane(nn.ReLU(), SQUARE)
    assert plane.polygon(plane.locate([[1.5, 1.5]])[0]).centre.tolist() == [1.5, 1.5]  # type: ignore[arg-type]


def damage_array(arrays: dict[str, Any], name: str, how: str) -> dict[str, Any] | None:
    """Copies of the arrays, one of them damaged; None if the damage changes nothing."""
    copies = {k: v.copy() for k, v in arrays.items()}
    x = copies[name]
    match how:
        case "missing":
            del copies[name]
        case "short":
            copies[name] = x[:-1]
        case "zero":
            copies[name] = x * 0
        case "reversed":
            copies[name] = np.ascontiguousarray(x[::-1])
        case "int32":
            copies[name] = x.astype(np.int32)
        case "negative":
            x.flat[0] = -7
        case "huge":
            x.flat[0] = 2**62
        case _:
            x[0] = x[1]
    same = name in copies and copies[name].dtype == arrays[name].dtype and np.array_equal(copies[name], arrays[name])
    return None if same else copies


def call_every_method(plane: PlaneRestriction) -> None:
    """Call every method; only typed errors are allowed."""
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
    ways = ("missing", "short", "zero", "reversed", "int32", "negative", "huge", "twice")
    damaged = (damage_array(arrays, name, how) for name in arrays for how in ways)
    files = [(copies, header) for copies in damaged if copies is not None]
    facts = json.loads(header["facts"])
    for key in facts:
        files += [(arrays, header | {"facts": json.dumps(facts | {key: v})}) for v in (None, -1, "x", [], {}, 1e400)]
        files += [(arrays, header | {"facts": json.dumps({k: v for k, v in facts.items() if k != key})})]
    count = 0
    for copies, metadata in files:
        save_file(copies, bad, metadata=metadata)
        try:
            call_every_method(PlaneRestriction.load(bad, model))
        except xl.ExactlineError:
            count += 1
    assert count >= 0.8 * len(files)
    raw = good.read_bytes()
    for at in range(0, len(raw), len(raw) // 40):
        bad.write_bytes(raw[:at])
        assert_refused(xl.FileError, PlaneRestriction.load, bad)


@pytest.mark.parametrize("size", ["1e200", "1e-200"])
@pytest.mark.every(2)
def test_the_command_writes_valid_json_and_pages_for_planes_of_any_size(size: str, tmp_path: Path, monkeypatch: Any):
    from typer.testing import CliRunner

    from exactline.cli import app

    monkeypatch.chdir(tmp_path)
    as_network(mlp(2, 4, 3), [torch.zeros(2)]).save("n.onnx")
    box = ["--base", "0,0", "--axes", "0,1", "--box", f"-{size},{size},-{size},{size}"]
    names = ["--labels", "<script>x</script>,</script><b>,[red]$^"]
    run = CliRunner().invoke(app, ["plane", "n.onnx", *box, *names, "--json", "--html", "p.html", "--plot", "p.svg"])
    assert run.exit_code == 0, run.output

    def refuse_constants(name: str) -> None:
        raise AssertionError(f"{name} is not valid JSON")

    document = json.loads(run.stdout.splitlines()[-1], parse_constant=refuse_constants)
    assert abs(sum(row["share"] for row in document["classes"]) - 1) <= 1e-12
    page = Path("p.html").read_text()
    assert "<script>x" not in page
    assert "</script><b>" not in page
