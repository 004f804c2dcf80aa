"""The legacy protocol without a connection: requests encoded by hand, responses compared with the exact oracle."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

import exactline as xl
from exactline.rpc.legacy import transform as transform_module
from exactline.rpc.legacy.transform import TransformSession, transform
from exactline.rpc.limits import Limits
from exactline.rpc.server.cache import NetworkCache
from exactline.zoo import tent_network
from tests.oracle.compare import mismatch
from tests.oracle.decisions import exact_decisions
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_networks import NETWORK_MAKERS, LegacyNetwork, float32_normal, make_fully_connected
from tests.rpc.legacy_wire import DecodedLine, DecodedPlane, Window

FLOAT32 = 2.0**-23


def transform_bytes(
    layers: list[bytes], *queries: bytes, limits: Limits | None = None
) -> Iterator[DecodedLine | DecodedPlane]:
    messages = [*map(wire.layer, layers), *queries]
    return (wire.decode_response(data) for data in transform(messages, limits or Limits()))


def break_ratios(layers: list[bytes], start: object, end: object) -> list[float]:
    (found,) = transform_bytes(layers, wire.line(start, end))
    return found.ratios.tolist()


def is_close(found: np.ndarray, truth: np.ndarray) -> bool:
    """Whether values differ by no more than the rounding to float32."""
    return bool((np.abs(found - truth) <= FLOAT32 * np.abs(truth) + 1e-12 * np.abs(truth).max()).all())


@pytest.mark.parametrize("make", NETWORK_MAKERS, ids=lambda f: f.__name__)
@pytest.mark.every(3)
def test_lines_have_every_break_and_float32_values_of_all_kinds_of_layers(make):
    rng = np.random.default_rng(5)
    net: LegacyNetwork = make(rng)
    module, seen = net.module(), 0
    for _ in range(2):
        start, end = 4 * float32_normal(rng, net.size), 4 * float32_normal(rng, net.size)
        with_values, without = transform_bytes(net.layers, wire.line(start, end), wire.line(start, end, post=False))
        exact = xl.exact.restrict(module, start, end)
        assert mismatch(torch.from_numpy(with_values.ratios), exact) is None
        seen += len(with_values.ratios) - 2
        points = start + with_values.ratios[:, None] * (end - start)
        assert is_close(with_values.values, net(points))
        assert np.array_equal(without.ratios, with_values.ratios)
        assert without.values.shape == (len(without.ratios), 0)
    assert seen > 4


@pytest.mark.parametrize("make", NETWORK_MAKERS, ids=lambda f: f.__name__)
@pytest.mark.every(4)
def test_the_pieces_of_planes_are_affine_and_cover_the_plane(make):
    rng = np.random.default_rng(8)
    net: LegacyNetwork = make(rng)
    module = net.module()
    corner, one, two = (float32_normal(rng, net.size) for _ in range(3))
    square = np.stack([corner, corner + one, corner + one + two, corner + two]).astype(np.float32).astype(np.float64)
    for vertices in (square[:3], square):
        (found,) = transform_bytes(net.layers, wire.plane(wire.polytope(vertices), dims=net.size))
        plane = xl.restrict_plane(module, _make_planar(vertices))
        assert (len(found.pieces), found.dims, found.subspace) == (len(plane), net(vertices).shape[1], 2)
        shares = []
        for values, mixing in found.pieces:
            assert mixing.min() >= 0
            assert np.abs(mixing.sum(1) - 1).max() < 4 * FLOAT32
            assert is_close(values, net(mixing @ vertices)) or np.abs(values - net(mixing @ vertices)).max() < 1e-4
            middle = net((mixing.mean(0) @ vertices)[None])[0]
            assert np.abs(middle - values.mean(0)).max() < 1e-4 * (1 + np.abs(values).max())
            shares.append(_area(mixing @ np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]])[: len(vertices)]))
        assert min(shares) > 0  # counter-clockwise like the vertices
        assert sum(shares) == pytest.approx(1 if len(vertices) == 4 else 0.5, abs=1e-5)


def _make_planar(vertices: np.ndarray) -> np.ndarray:
    """Recompute the fourth corner of a parallelogram, which rounding to float32 has moved, from the other three."""
    return np.concatenate([vertices[:3], [vertices[0] + vertices[2] - vertices[1]]])[: len(vertices)]


def _area(ring: np.ndarray) -> float:
    x, y = ring.T
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def test_argmax_splits_lines_at_class_boundaries_and_names_the_class_of_each_piece():
    rng = np.random.default_rng(3)
    for _ in range(4):
        net = make_fully_connected(rng).dense(float32_normal(rng, 2, 4), float32_normal(rng, 4))
        start, end = 4 * float32_normal(rng, 3), 4 * float32_normal(rng, 3)
        found, plain = transform_bytes(
            [*net.layers, wire.argmax()], wire.line(start, end), wire.line(start, end, post=False)
        )
        exact = xl.exact.restrict(net.module(), start, end)
        truth = exact_decisions(exact)
        cuts = sorted({*exact.alphas, *(interval.start for interval in truth)})
        assert found.ratios == pytest.approx([float(cut) for cut in cuts], abs=1e-12)
        middles = (found.ratios[1:] + found.ratios[:-1]) / 2
        classes = net(start + middles[:, None] * (end - start)).argmax(1)
        assert found.values[:-1, 0].tolist() == classes.tolist()
        assert found.values[-1, 0] == classes[-1]
        assert np.array_equal(plain.ratios, found.ratios)
        assert plain.values.size == 0


def test_argmax_splits_planes_at_class_boundaries():
    rng = np.random.default_rng(4)
    net = make_fully_connected(rng).dense(float32_normal(rng, 2, 4), float32_normal(rng, 4))
    vertices = 4 * float32_normal(rng, 3, 3)
    (found,) = transform_bytes([*net.layers, wire.argmax()], wire.plane(wire.polytope(vertices), dims=3))
    assert found.dims == 1
    classes = set()
    for values, mixing in found.pieces:
        inside = rng.dirichlet(np.ones(len(mixing)), size=20) @ mixing
        labels = net(inside @ vertices).argmax(1)
        assert set(labels.tolist()) == set(values[:, 0].tolist())
        classes.update(labels.tolist())
    assert len(classes) > 1


def test_classes_as_legacy_clients_find_them():
    """They send the values of each piece back as a line or a polytope in float32, with an ArgMax alone.

    Values of pieces where units are off lie in a point or on a line, and rounding moves corners of small ones.
    """
    rng = np.random.default_rng(6)
    net = (
        LegacyNetwork(2)
        .dense(float32_normal(rng, 2, 16), float32_normal(rng, 16))
        .relu()
        .dense(float32_normal(rng, 16, 8), float32_normal(rng, 8))
        .relu()
    )
    net = net.dense(float32_normal(rng, 8, 3), float32_normal(rng, 3) - 8).relu()
    square = np.array([[-4, -4], [4, -4], [4, 4], [-4, 4.0]])
    (whole,) = transform_bytes(net.layers, wire.plane(wire.polytope(square), dims=2))
    asked = [wire.plane(wire.polytope(values), dims=3) for values, _ in whole.pieces]
    area, ranks = 0.0, set()
    for (values, mixing), found in zip(whole.pieces, transform_bytes([wire.argmax()], *asked), strict=True):
        ranks.add(np.linalg.matrix_rank(values - values[0], tol=1e-4))
        for labels, shares in found.pieces:
            corners = shares @ mixing @ square
            middle = net(corners.mean(0)[None])[0]
            assert middle[int(labels[0, 0])] >= middle.max() - 1e-4
            area += _area(corners)
    assert ranks == {0, 1, 2}
    assert area == pytest.approx(64, abs=1e-3)  # the pieces cover the whole square
    start, end = float32_normal(rng, 2) * 4, float32_normal(rng, 2) * -4
    (line,) = transform_bytes(net.layers, wire.line(start, end))
    asked = [wire.line(a, b, post=False) for a, b in pairwise(line.values)]
    for i, found in enumerate(transform_bytes([wire.argmax()], *asked)):
        cuts = line.ratios[i] + found.ratios * (line.ratios[i + 1] - line.ratios[i])
        for left, right in pairwise(cuts):
            inside = net(start + np.linspace(left, right, 5)[1:-1, None] * (end - start))
            leads = (inside >= inside.max(1, keepdims=True) - 1e-4).all(0)
            assert leads.any()  # one class is largest throughout


def test_argmax_takes_the_first_of_tied_classes_and_a_boundary_at_a_break_is_one_endpoint():
    # both outputs are relu(x) and tied everywhere: only the break of the units remains
    same = [wire.dense([[1, 1]], [0, 0]), wire.relu(), wire.argmax()]
    (found,) = transform_bytes(same, wire.line([-1], [1]))
    assert (found.ratios.tolist(), found.values[:, 0].tolist()) == ([0.0, 0.5, 1.0], [0.0, 0.0, 0.0])
    # relu(x) against relu(-x): the boundary is where both break
    turn = [wire.dense([[1, -1]], [0, 0]), wire.relu(), wire.argmax()]
    (found,) = transform_bytes(turn, wire.line([-1], [1]))
    assert (found.ratios.tolist(), found.values[:, 0].tolist()) == ([0.0, 0.5, 1.0], [1.0, 0.0, 0.0])


def test_known_wrong_answer_relu_fused_with_max():
    layers = [wire.relu(), wire.max_pool(Window(1, 2, 1, (1, 2)))]
    assert break_ratios(layers, [1, -1], [-3, 1]) == [0.0, 0.25, 0.5, 1.0]


def test_known_wrong_answer_bias_free_network_through_the_origin():
    rng = np.random.default_rng(11)
    none = np.zeros(64)
    layers = [wire.dense(float32_normal(rng, 16, 64), none), wire.relu()]
    for _ in range(4):
        layers += [wire.dense(float32_normal(rng, 64, 64), none), wire.relu()]
    x = float32_normal(rng, 16)
    found = break_ratios(layers, -x, 2 * x)
    assert found == pytest.approx([0.0, float(Fraction(1, 3)), 1.0], abs=1e-15)


def test_known_wrong_answer_large_work_that_is_split():
    """A line with more breaks than are computed at once; all of them are known exactly."""
    network, depth = tent_network(12), 12
    layers: list[bytes] = []
    for module in network:
        if isinstance(module, torch.nn.Linear):
            layers.append(wire.dense(module.weight.detach().numpy().T, module.bias.detach().numpy()))
        else:
            layers.append(wire.relu())
    (found,) = transform_bytes(layers, wire.line([0.0], [1.0]))
    assert found.ratios.tolist() == [k / 2**depth for k in range(2**depth + 1)]
    assert found.values[:, 0].tolist() == [float(k % 2) for k in range(2**depth + 1)]


def test_known_wrong_answer_ties_go_to_the_steepest():
    layers = [wire.max_pool(Window(1, 3, 1, (1, 3)))]
    assert break_ratios(layers, [0, 0, -1], [1, 2, 3]) == [0.0, 0.5, 1.0]


def test_a_max_pool_is_padded_with_minus_infinity_and_by_more_than_torch_allows():
    (found,) = transform_bytes([wire.max_pool(Window(1, 2, 1, (1, 3), pad=(0, 2)))], wire.line([-3, -1], [-1, -3]))
    assert found.ratios.tolist() == [0.0, 0.5, 1.0]
    assert found.values[0].tolist() == [-3, -1, -1, -1]  # windows (-3), (-3, -1), (-3, -1), (-1)


def test_an_average_pool_counts_the_zeros_of_any_padding():
    (found,) = transform_bytes([wire.average_pool(Window(1, 2, 1, (1, 3), pad=(0, 2)))], wire.line([3, 6], [3, 6]))
    assert found.values[0].tolist() == [1, 3, 3, 2]


def test_no_layers_are_the_identity_and_layers_without_a_size_take_any():
    first, second = transform_bytes([], wire.line([1, 2], [3, 4]), wire.line([1], [3]))
    assert (first.values.tolist(), second.values.tolist()) == ([[1, 2], [3, 4]], [[1], [3]])
    first, second = transform_bytes([wire.relu()], wire.line([-1, -1], [1, 1]), wire.line([-1, 0, 3], [3, 0, -1]))
    assert (first.ratios.tolist(), second.ratios.tolist()) == ([0.0, 0.5, 1.0], [0.0, 0.25, 0.75, 1.0])


def test_a_line_of_one_point_is_answered():
    (found,) = transform_bytes([wire.relu()], wire.line([1, -1], [1, -1]))
    assert (found.ratios.tolist(), found.values.tolist()) == ([0.0, 1.0], [[1, 0], [1, 0]])


def test_several_polytopes_in_one_message_are_answered_one_after_another():
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1.0]])
    (found,) = transform_bytes([wire.relu()], wire.plane(wire.polytope(square), wire.polytope(square[:3] + 5), dims=2))
    assert [len(mixing[0]) for _, mixing in found.pieces] == [4, 4, 4, 4, 3]
    assert np.array_equal(found.pieces[4][0], (square[:3] + 5)[np.argmax(found.pieces[4][1], 1)])


def test_combinations_refer_to_the_vertices_of_the_first_polytope():
    """A piece of an earlier response is the next query: its combinations still refer to the original vertices."""
    whole = np.array([[-2, -2], [2, -2], [0, 2.0]])
    mixing = np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1.0]])
    (found,) = transform_bytes([wire.relu()], wire.plane(wire.polytope(mixing @ whole, mixing), dims=2))
    for values, shares in found.pieces:
        assert np.allclose(np.maximum(shares @ whole, 0), values, atol=1e-6)


def test_degenerate_polytopes_are_lines_and_points():
    point = [[2, -3], [2, -3], [2, -3]]
    segment = wire.polytope([[-1, 0], [1, 0]])
    (found,) = transform_bytes([wire.relu()], wire.plane(segment, wire.polytope(point), dims=2))
    (left, first), (right, second), (dot, third) = found.pieces
    assert (left.tolist(), first.tolist()) == ([[0, 0], [0, 0]], [[1, 0], [0.5, 0.5]])
    assert (right.tolist(), second.tolist()) == ([[0, 0], [1, 0]], [[0.5, 0.5], [0, 1]])
    assert (dot.tolist(), third.tolist()) == (
        [[2, 0]] * 3,
        np.eye(3).tolist(),
    )  # all corners, although they are one point
    (found,) = transform_bytes([wire.relu(), wire.argmax()], wire.plane(wire.polytope([[1, -1], [0, 2]]), dims=2))
    assert [values[:, 0].tolist() for values, _ in found.pieces] == [[0, 0], [0, 0], [1, 1]]


def test_a_polygon_projected_onto_a_line_is_cut_into_strips():
    """The image of a square on a line keeps its four corners, and each piece is a strip of the square."""
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]])
    folded = square @ [[1.0, 1.0], [2.0, 2.0]] - 1  # from -1 to 2, along the diagonal of the plane
    (found,) = transform_bytes([wire.relu()], wire.plane(wire.polytope(folded), dims=2))
    areas = []
    for values, shares in found.pieces:
        assert np.allclose(np.maximum(shares @ folded, 0), values, atol=1e-6)
        areas.append(_area(shares @ square))
    assert sorted(areas) == pytest.approx([0.25, 0.75], abs=1e-6)  # x + 2 y below 1, and above


def test_corners_that_float32_moves_off_the_plane_or_inside_are_accepted():
    rng = np.random.default_rng(2)
    base, one, two = rng.normal(size=(3, 50))
    turns = np.linspace(0, 2 * np.pi, 9)[:-1]
    ring = base + np.cos(turns)[:, None] * one + np.sin(turns)[:, None] * two
    doubled = np.stack([ring, (ring + np.roll(ring, -1, 0)) / 2], 1).reshape(16, 50)  # with the midpoints of its sides
    (found,) = transform_bytes([wire.relu()], wire.plane(wire.polytope(doubled), dims=50))
    given = doubled.astype(np.float32)
    assert len(found.pieces) > 50
    for values, mixing in found.pieces:
        assert np.abs(np.maximum(mixing @ given, 0) - values).max() < 1e-5


def test_what_exceeds_a_limit_is_refused_with_its_name():
    tent = [wire.dense([[1, 1, 1]], [0, -0.25, -0.5]), wire.relu()]  # breaks at 1/4 and 1/2: four with the ends
    ask = wire.line([0], [1])
    (found,) = transform_bytes(tent, ask, limits=Limits(breaks_per_line=4))
    assert len(found.ratios) == 4
    for limits, name in (
        (Limits(breaks_per_line=3), "breaks_per_line"),
        (Limits(legacy_message_bytes=100), "legacy_message_bytes"),
        (Limits(legacy_layers=1), "legacy_layers"),
    ):
        with pytest.raises(xl.errors.LimitError, match=f"The limit {name} is"):
            list(transform_bytes(tent, ask, limits=limits))
    assert len(list(transform_bytes(tent, ask, ask, limits=Limits(lines_per_call=2)))) == 2
    with pytest.raises(xl.errors.LimitError, match="lines_per_call"):
        list(transform_bytes(tent, ask, ask, ask, limits=Limits(lines_per_call=2)))
    square = wire.plane(wire.polytope([[-1, -1], [1, -1], [1, 1], [-1, 1]]), dims=2)
    assert len(next(transform_bytes([wire.relu()], square, limits=Limits(polygons_per_plane=4))).pieces) == 4
    with pytest.raises(xl.errors.LimitError, match="polygons_per_plane"):
        list(transform_bytes([wire.relu()], square, limits=Limits(polygons_per_plane=3)))


def test_values_that_float32_cannot_hold_are_refused():
    with pytest.raises(xl.NumberError, match="float32 cannot hold"):
        list(transform_bytes([wire.dense([[3e38]], [0])], wire.line([2], [3])))


def test_a_network_that_was_sent_before_is_not_built_again(monkeypatch):
    rng = np.random.default_rng(8)
    layers = [make_fully_connected(rng).layers for _ in range(2)]
    size = make_fully_connected(rng).size
    line = wire.line(float32_normal(rng, size), float32_normal(rng, size))
    messages = [[*map(wire.layer, part), line] for part in layers]
    truths = [list(transform(part, Limits())) for part in messages]
    assert truths[0] != truths[1]
    cache = NetworkCache(1 << 20)
    for chosen in (0, 1, 0, 1, 0):
        session = TransformSession(Limits(), cache)
        assert [answer for _, answer in session.answer(messages[chosen])] == truths[chosen]
    assert cache.counters()["hits"] == 3
    assert cache.counters()["misses"] == len(cache.entries) == 2
    # the same bytes in another order, or with an ArgMax behind them, are another network
    swapped = [
        answer
        for _, answer in TransformSession(Limits(), cache).answer([*messages[0][:-1], wire.layer(wire.argmax()), line])
    ]
    assert swapped != truths[0]
    assert cache.counters()["misses"] == 3
    monkeypatch.setattr(transform_module, "MAX_CACHED_LAYER_BYTES", 8)  # large ones are not kept
    assert [answer for _, answer in TransformSession(Limits(), cache).answer(messages[0])] == truths[0]
    assert cache.counters()["hits"] == 3
