"""The laws, over every operator in the registry; an operator without a sample fails."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.network.aten import RULES
from exactline.network.capture import capture_module
from exactline.ops.base import Affine
from exactline.tolerances import ERROR_WIDTH
from tests.oracle.compare import TOLERANCE, mismatch

from .samples import SAMPLES, UNREACHABLE, Sample
from .study import inner, study

KEYS = sorted(key for key in RULES if "::" not in key)  # the others are users' own
ALL = [sample for key in sorted(SAMPLES) for sample in SAMPLES[key]]
BATCHES = (1, 2, 5)
RELATIVE = 1e-12  # between our forward pass and torch's
GRADIENT = 1e-9  # between torch's gradient and the map of a piece, relative to its largest entry


def samples_of(chosen: list[Sample]) -> pytest.MarkDecorator:
    """One test for each sample; only the first sample of an operator is quick.

    All tests of a sample run in one process, which captures its network once.
    """
    first = {sample.key: sample for sample in reversed(chosen)}
    quick = {id(sample) for sample in first.values()}
    params = []
    for sample in chosen:
        marks = [pytest.mark.xdist_group(str(sample)), *([] if id(sample) in quick else [pytest.mark.slow])]
        params.append(pytest.param(sample, id=str(sample), marks=marks))
    return pytest.mark.parametrize("sample", params)


every_sample = samples_of(ALL)


def within(found: Tensor, expected: Tensor, bound: Tensor) -> bool:
    """Whether values agree, element by element."""
    return bool(((found - expected).abs() <= bound).all())


# the samples say what they are


@pytest.mark.parametrize("key", KEYS)
def test_every_operator_has_samples(key):
    assert (key in SAMPLES) != (key in UNREACHABLE), "give it samples, or say why no model can have it"


@pytest.mark.parametrize("key", sorted(SAMPLES))
def test_no_sample_is_for_an_operator_we_do_not_have(key):
    assert key in RULES


@pytest.mark.parametrize("key", sorted(UNREACHABLE.keys() & RULES.keys()))
def test_an_operator_without_samples_is_really_out_of_reach(key, monkeypatch):
    attempt, made = UNREACHABLE[key], []
    rule = RULES[key]
    monkeypatch.setitem(RULES, key, lambda b, a: made.append(rule(b, a)) or made[-1])

    class Trial(nn.Module):
        def forward(self, x):
            return attempt.function(x)

    try:
        capture_module(Trial(), [torch.zeros(attempt.shape)])
    except xl.CaptureError:
        return
    assert not made, "a model can reach it: give it a sample"


@every_sample
@pytest.mark.every(4)
def test_a_sample_brings_its_operator_to_its_rule(sample):
    assert study(sample).calls


@pytest.mark.slow
@every_sample
def test_a_sample_knows_whether_it_is_rewritten(sample):
    assert len(study(sample).networks) == 1 + sample.fused


# the laws


@every_sample
@pytest.mark.every(2)
def test_the_network_is_torchs_own_forward(sample):
    found = study(sample)
    generator = torch.Generator().manual_seed(1)
    for size in BATCHES:
        points = torch.randn(size, *sample.shape, generator=generator, dtype=torch.float64)
        for x in (2 * points, points.mul(2).round()):
            with torch.no_grad():
                theirs = found.double(x)
            for network in found.networks.values():
                ours = network(x, tail=True)
                assert ours.dtype == theirs.dtype
                assert ours.shape == theirs.shape
                assert within(ours, theirs, RELATIVE * theirs.abs().max())


@every_sample
def test_affine_operators_map_an_empty_batch(sample):
    for network in study(sample).networks.values():
        for node in network.nodes:
            if isinstance(node.op, Affine):
                inputs = [torch.zeros(0, *network.nodes[i].shape, dtype=torch.float64) for i in node.inputs]
                assert node.op.linear(*inputs).shape == (0, *node.shape)


@pytest.mark.slow
@every_sample
def test_an_operator_is_affine_between_its_breaks(sample):
    found = study(sample)
    for answer in found.lines:
        alphas = inner(answer.line.alphas).flatten()
        # two ends, one forward pass, and a bend no further from its break than an error can move it
        assert within(answer.line.at(alphas), found.forward(answer.points(alphas)), 4 * answer.bound)


@every_sample
@pytest.mark.every(4)
def test_breaks_and_values_match_the_rational_oracle(sample):
    found = study(sample)
    for answer in found.lines:
        for network in found.networks.values():
            line = xl.restrict(network, answer.start, answer.end)
            exact = xl.exact.restrict(network, answer.start, answer.end)
            assert mismatch(line.alphas, exact) is None
            truth = [[float(v) for v in exact.value(a)] for a in line.alphas.tolist()]
            values = torch.tensor(truth, dtype=torch.float64).view(line.values.shape)
            assert within(line.values, values, 2 * answer.bound)


@samples_of([s for s in ALL if s.fused])
def test_rewriting_keeps_the_function(sample):
    found = study(sample)
    for answer in found.lines:
        plain = xl.restrict(found.plain, answer.start, answer.end)
        alphas = torch.cat([answer.line.alphas, plain.alphas])
        assert len(answer.line) <= len(plain)
        assert within(answer.line.at(alphas), plain.at(alphas), 4 * answer.bound)


@pytest.mark.slow
@every_sample
def test_reversing_the_line_mirrors_its_breaks(sample):
    answer = study(sample).lines[0]
    line, back = answer.line, study(sample).answer(answer.end, answer.start).line
    mirrored = 1 - back.alphas.flip(0)
    assert len(back) == len(line)
    assert within(mirrored, line.alphas, torch.tensor(2 * TOLERANCE))
    assert within(back.values.flip(0), line.at(mirrored), 4 * answer.bound)


@pytest.mark.slow
@every_sample
def test_splitting_the_line_and_joining_changes_nothing(sample):
    answer = study(sample).lines[1]
    cut = _away_from(answer.line.alphas)
    middle = answer.points(torch.tensor([cut], dtype=torch.float64))[0]
    first, second = (study(sample).answer(*ends).line for ends in ((answer.start, middle), (middle, answer.end)))
    alphas = torch.cat([cut * first.alphas[:-1], cut + (1 - cut) * second.alphas[1:]])
    values = torch.cat([first.values[:-1], second.values[1:]])
    assert len(alphas) == len(answer.line.alphas)
    assert within(alphas, answer.line.alphas, torch.tensor(2 * TOLERANCE))
    assert within(values, answer.line.at(alphas), 4 * answer.bound)


@pytest.mark.slow
@samples_of([s for s in ALL if s.autograd])
def test_the_gradient_is_constant_on_every_piece(sample):
    found, answer = study(sample), study(sample).lines[0]
    alphas = inner(answer.line.alphas)
    gradients = found.gradient(answer.points(alphas.flatten()))
    gradients = gradients.view(*alphas.shape, *gradients.shape[1:])
    for i in range(len(answer.line)):
        if answer.line.ambiguous_per_piece[i] == 0:
            matrix, _ = answer.line.piece(i).affine()
            assert within(gradients[i], matrix, GRADIENT * matrix.abs().max())


@pytest.mark.slow
@every_sample
def test_the_minimal_partition_has_the_same_values(sample):
    answer = study(sample).lines[0]
    fewest = answer.line.minimal()
    assert set(fewest.alphas.tolist()) <= set(answer.line.alphas.tolist())
    # a value is dropped that lies within SAFETY times its estimated error of the chord
    assert within(fewest.at(answer.line.alphas), answer.line.values, ERROR_WIDTH * answer.bound)


@samples_of([s for s in ALL if s.dyadic])
@pytest.mark.every(4)
def test_ties_make_neither_more_breaks_nor_fewer(sample):
    found = study(sample)
    for ends in found.tied_lines():
        for network in found.networks.values():
            line, exact = xl.restrict(network, *ends), xl.exact.restrict(network, *ends)
            assert len(line.alphas) == len(exact.alphas)
            assert mismatch(line.alphas, exact) is None


def _away_from(alphas: Tensor) -> float:
    """A place to cut a line that is no break of it."""
    generator = torch.Generator().manual_seed(2)
    while True:
        cut = 0.2 + 0.6 * float(torch.rand((), generator=generator, dtype=torch.float64))
        if bool(((alphas - cut).abs() > 1e-6).all()):
            return cut


@pytest.mark.every(8)
@every_sample
def test_a_pickled_network_computes_the_same(sample):
    network = study(sample).network
    copy = pickle.loads(pickle.dumps(network))
    x = torch.rand(5, *sample.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4 - 2
    assert torch.equal(copy(x, tail=True), network(x, tail=True))
    assert copy.checksum() == network.checksum()
