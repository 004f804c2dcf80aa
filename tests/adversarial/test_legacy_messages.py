"""Invalid messages of the legacy protocol are refused, with an error that says where."""

from __future__ import annotations

import numpy as np
import pytest

import exactline as xl
from exactline.rpc.legacy.transform import transform
from exactline.rpc.limits import Limits
from exactline.rpc.protos import syrenn_server_pb2
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_wire import ALONG_CHANNELS, ALONG_FLAT, Window

NAN, INF = float("nan"), float("inf")
EYE = wire.dense([[1, 0], [0, 1]], [0, 0])
LINE = wire.line([0, 0], [1, 1])
HUGE = 2**32 - 1


def nested_concat(levels: int) -> bytes:
    layer = wire.relu()
    for _ in range(levels):
        layer = wire.concat([layer], ALONG_FLAT)
    return layer


def ends(*points: tuple[object, float]) -> bytes:
    return wire.encode_message(2, b"".join(wire.encode_endpoint(point, ratio) for point, ratio in points))


LAYERS = {
    "no kind": (b"", "no known kind"),
    "a kind of the future": (wire.encode_message(20, b""), "no known kind"),
    "no weights": (wire.dense([], []), "0 weights and 0 biases"),
    "weights without biases": (wire.dense([1, 2], []), "2 weights and 0 biases"),
    "biases without weights": (wire.dense([], [1]), "0 weights and 1 biases"),
    "weights that do not fit": (wire.dense([1, 2, 3], [0, 0]), "3 weights and 2 biases"),
    "a NaN weight": (wire.dense([NAN, 0, 0, 1], [0, 0]), "weights hold NaN"),
    "an infinite bias": (wire.dense([1, 0, 0, 1], [0, INF]), "biases hold NaN"),
    "no window": (wire.encode_message(2, b""), "at least 1"),
    "a stride of 0": (wire.max_pool(Window(2, 1, 1, (1, 1), stride=(0, 1))), "at least 1"),
    "a window of 0": (wire.average_pool(Window(2, 1, 1, (0, 1))), "at least 1"),
    "no channels": (wire.max_pool(Window(2, 1, 0, (1, 1))), "at least 1"),
    "no channels out": (wire.conv(Window(2, 1, 1, (1, 1), 0), [], []), "at least 1"),
    "a window too large": (wire.max_pool(Window(2, 1, 1, (3, 1))), "larger than the padded input"),
    "windows in the padding": (wire.max_pool(Window(2, 1, 1, (2, 1), pad=(2, 0))), "entirely in the padding"),
    "a pool that makes channels": (wire.max_pool(Window(2, 1, 1, (1, 1), 2)), "keeps the number of channels|output 2"),
    "too few filters": (wire.conv(Window(2, 1, 1, (2, 1), 3), [1, 2, 3], [0, 0, 0]), "3 weights and 3 biases"),
    "too few biases": (wire.conv(Window(2, 1, 1, (2, 1), 1), [1, 2], []), "2 weights and 0 biases"),
    "a NaN filter": (wire.conv(Window(2, 1, 1, (2, 1), 1), [1, NAN], [0]), "filters hold NaN"),
    "huge sizes": (wire.max_pool(Window(HUGE, HUGE, HUGE, (1, 1))), "too many units"),
    "a huge padding": (wire.conv(Window(2, 1, 1, (1, 1), 1, pad=(HUGE, HUGE)), [1], [0]), "too many units"),
    "a huge padding and stride": (
        wire.conv(Window(2, 1, 1, (1, 1), 1, (HUGE, HUGE), (HUGE, HUGE)), [1], [0]),
        "too many units",
    ),
    "huge windows": (wire.max_pool(Window(2048, 2048, 1, (1024, 1024))), "places in windows"),
    "no means": (wire.normalize([], []), "0 means and 0 deviations"),
    "fewer deviations": (wire.normalize([0, 0], [1]), "2 means and 1 deviations"),
    "a deviation of 0": (wire.normalize([0, 0], [1, 0]), "a deviation is 0"),
    "a NaN mean": (wire.normalize([NAN], [1]), "means hold NaN"),
    "nothing to join": (wire.concat([], ALONG_FLAT), "no layers"),
    "join by 0": (wire.concat([wire.relu()], 0), "does not say how to join"),
    "join by 3": (wire.concat([wire.relu()], 3), "does not say how to join"),
    "a part of no kind": (wire.concat([wire.relu(), b""], ALONG_FLAT), "part 2"),
    "argmax inside": (wire.concat([wire.argmax()], ALONG_FLAT), "ArgMax may only|inside a concatenation"),
    "too deep": (nested_concat(17), "nested"),
}


def refuse(*messages: bytes) -> xl.ExactlineError:
    with pytest.raises(xl.ExactlineError) as caught:
        list(transform(messages, Limits()))
    return caught.value


@pytest.mark.parametrize("name", LAYERS)
def test_an_invalid_layer_is_refused_before_the_first_line(name):
    layer, expected = LAYERS[name]
    error = refuse(wire.layer(wire.relu()), wire.layer(layer))
    assert isinstance(error, (xl.ArgumentError, xl.FileError))
    assert any(part in str(error) for part in expected.split("|"))
    assert "layer 2" in error.where
    assert "/" not in str(error)  # no path of this machine


FIT = {
    "dense after dense": ([EYE, wire.dense([[1], [1], [1]], [0])], "takes 3 numbers, but its input has 2"),
    "a pool of another size": ([EYE, wire.max_pool(Window(3, 1, 1, (1, 1)))], "takes 3 numbers, but its input has 2"),
    "channels that do not divide": ([EYE, wire.normalize([0, 0, 0], [1, 1, 1])], "3 means, but its input has 2"),
    "parts of different heights": (
        [wire.concat([wire.max_pool(Window(4, 1, 1, (n, 1))) for n in (2, 3)], ALONG_CHANNELS)],
        "different heights",
    ),
    "parts that take different sizes": (
        [wire.concat([EYE, wire.dense([[1], [1], [1]], [0])], ALONG_FLAT)],
        "takes 3 numbers, but its input has 2",
    ),
    "after argmax": ([EYE, wire.argmax(), wire.relu()], "after ArgMax"),
    "argmax twice": ([EYE, wire.argmax(), wire.argmax()], "after ArgMax"),
}


@pytest.mark.parametrize("name", FIT)
def test_layers_that_do_not_fit_each_other_are_refused(name):
    layers, expected = FIT[name]
    assert expected in str(refuse(*map(wire.layer, layers)))


QUERIES = {
    "nothing": (b"", "holds no layer"),
    "something unknown": (wire.encode_message(9, b"abc"), "holds no layer"),
    "a line of nothing": (wire.encode_message(2, b""), "0 endpoints"),
    "one end": (ends(([0, 0], 0.0)), "1 endpoints"),
    "three ends": (ends(([0, 0], 0.0), ([1, 1], 0.5), ([1, 1], 1.0)), "3 endpoints"),
    "ratios from 1 to 0": (ends(([0, 0], 1.0), ([1, 1], 0.0)), "ratios are 1 and 0"),
    "a ratio of a half": (ends(([0, 0], 0.0), ([1, 1], 0.5)), "ratios are 0 and 0.5"),
    "a NaN ratio": (ends(([0, 0], NAN), ([1, 1], 1.0)), "ratios are nan and 1"),
    "no coordinates": (ends(([], 0.0), ([], 1.0)), "0 and 0 coordinates"),
    "ends of two sizes": (ends(([0, 0], 0.0), ([1], 1.0)), "2 and 1 coordinates"),
    "a NaN coordinate": (wire.line([0, NAN], [1, 1]), "coordinates hold NaN"),
    "an infinite coordinate": (wire.line([0, 0], [1, -INF]), "coordinates hold NaN"),
    "a line of another size": (wire.line([0, 0, 0], [1, 1, 1]), "takes 2 numbers, but its input has 3"),
    "no polytope": (wire.plane(dims=2), "no polytope"),
    "no dimensions": (wire.plane(wire.polytope(np.zeros((3, 0))), dims=0), "no dimensions"),
    "no vertices": (wire.plane(wire.polytope(np.zeros((0, 2))), dims=2), "for 0 vertices"),
    "too many dimensions": (wire.plane(wire.polytope(np.eye(2)), dims=HUGE), "for 2 vertices"),
    "too many vertices": (
        wire.plane(wire.encode_message(1, wire.encode_floats(1, [0, 0]) + wire.encode_uint(3, HUGE)), dims=2),
        "4,294,967,295 vertices",
    ),
    "a NaN vertex": (wire.plane(wire.polytope([[0, 0], [1, 0], [NAN, 1]]), dims=2), "vertices hold NaN"),
    "a NaN share": (wire.plane(wire.polytope(np.eye(3, 2), np.full((3, 3), NAN)), dims=2), "combinations hold NaN"),
    "shares that do not add up": (wire.plane(wire.polytope(np.eye(3, 2), np.eye(3) * 2), dims=2), "not convex"),
    "too few shares": (wire.plane(wire.polytope(np.eye(3, 2), np.ones(4)), dims=2), "4 shares for 3 vertices"),
    "not convex": (
        wire.plane(wire.polytope([[0, 0], [4, 0], [1, 1], [0, 4]]), dims=2),
        "not in the order of a convex polygon",
    ),
    "a plane of another size": (wire.plane(wire.polytope(np.eye(3)), dims=3), "takes 2 numbers, but its input has 3"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_an_invalid_line_or_plane_is_refused(name):
    message, expected = QUERIES[name]
    error = refuse(wire.layer(EYE), message)
    assert expected in str(error)
    assert isinstance(error, (xl.ArgumentError, xl.LineError, xl.PlaneError))


def test_a_solid_is_refused():
    error = refuse(wire.layer(wire.relu()), wire.plane(wire.polytope(np.eye(4, 3)), dims=3))
    assert isinstance(error, xl.PlaneError)
    assert "not lie in one plane" in str(error)


def test_a_layer_after_a_line_is_refused_and_the_line_is_answered_first():
    answers = transform([wire.layer(EYE), LINE, wire.layer(EYE)], Limits())
    assert wire.decode_response(next(answers)).ratios.tolist() == [0.0, 1.0]
    with pytest.raises(xl.ArgumentError, match="after a line"):
        next(answers)


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", wire.layer(nested_concat(60)), b"\x0a\x02\x0a\x05ab"]
)
def test_invalid_bytes_are_refused(data):
    with pytest.raises(xl.ArgumentError, match=r"cannot be decoded|nested"):
        list(transform([data], Limits()))


def test_sixteen_nested_concatenations_are_answered():
    (found,) = transform([wire.layer(nested_concat(16)), wire.line([-1], [1])], Limits())
    assert wire.decode_response(found).ratios.tolist() == [0.0, 0.5, 1.0]


def test_random_bytes_are_refused_or_answered():
    """Valid messages with bytes changed, removed and inserted cause no other error."""
    rng = np.random.default_rng(1)
    seeds = [wire.layer(layer) for layer, _ in LAYERS.values() if len(layer) < 500] + [m for m, _ in QUERIES.values()]
    seeds += [wire.layer(EYE), LINE, wire.plane(wire.polytope(np.eye(3, 2)), dims=2)]
    read = 0
    for _ in range(1500):
        data = bytearray(seeds[rng.integers(len(seeds))])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(len(data) + 1))
            data[at : at + int(rng.integers(3))] = rng.bytes(int(rng.integers(3)))
        messages = [wire.layer(EYE), bytes(data), LINE]
        try:
            read += all(
                syrenn_server_pb2.TransformResponse.FromString(answer).WhichOneof("response_data")
                for answer in transform(messages, Limits(breaks_per_line=1000))
            )
        except xl.ExactlineError:
            continue
    assert read > 5
