"""Closed loops: against simulations, a linear system solved by hand, and a published network."""

import pytest
import torch

import exactline as xl
from exactline.network import as_network
from exactline.paper.pendulum import bundled_step, published_step, run
from exactline.paper.pendulum.plot import draw_study
from exactline.paper.pendulum.reach import polygon_area, simulate, successors
from exactline.paper.pendulum.report import describe_verdict, write_report
from exactline.paper.pendulum.step import MAX_SINE_ANGLE, PiecewiseSine, repeat_step


@pytest.fixture(scope="module")
def step():
    return bundled_step()


@pytest.fixture(scope="module")
def study(step):
    return run(step, steps=3)


def rotation(x):
    """A quarter turn, halved: areas shrink by 4."""
    return torch.cat([-x[:, 1:], x[:, :1]], 1) / 2


def test_a_linear_step_maps_a_box_to_one_polygon():
    found = run(as_network(rotation, [torch.zeros(2)]), steps=3, box=((-1.0, 1.0), (-2.0, 2.0)), limit=1.0)
    assert [len(r.plane) for r in found.reached] == [1, 1, 1]
    assert [r.largest_angle for r in found.reached] == pytest.approx([1.0, 0.25, 0.25])
    assert [r.image_area for r in found.reached] == pytest.approx([2.0, 0.5, 0.125])
    assert found.is_safe


def test_successors_of_a_fold_cover_its_image():
    """abs folds the square onto its upper right quarter, four times over."""
    images = successors(as_network(torch.abs, [torch.zeros(2)]), torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]]))
    assert len(images) == 4
    assert all(float(polygon_area(image)) == pytest.approx(1.0) for image in images)


def test_many_steps_are_the_step_many_times(step):
    generator = torch.Generator().manual_seed(0)
    starts = (2 * torch.rand(50, 2, generator=generator, dtype=torch.float64) - 1) * torch.tensor([0.2, 0.4])
    for count in (1, 3):
        states = starts
        for _ in range(count):
            states = step(states)
        assert torch.equal(repeat_step(step, count)(starts), states)


def test_no_simulation_leaves_the_reached_states(step, study):
    generator = torch.Generator().manual_seed(1)
    starts = (2 * torch.rand(2000, 2, generator=generator, dtype=torch.float64) - 1) * torch.tensor([0.2, 0.4])
    states = starts
    for reached in study.reached:
        states = step(states)
        assert float(states[:, 0].abs().max()) <= reached.largest_angle + 1e-12
        assert float(states[:, 1].abs().max()) <= reached.largest_velocity + 1e-12
        coordinates = reached.plane.coordinates(starts)
        assert torch.allclose(reached.plane.at(coordinates), states, atol=1e-11)


def test_the_worst_start_leads_to_the_largest_angle(step, study):
    for reached in study.reached:
        states = simulate(step, reached.worst_start, reached.steps)
        assert abs(float(states[-1, 0])) == pytest.approx(reached.largest_angle, rel=1e-10)


def test_a_limit_that_is_too_tight_has_a_counterexample(step):
    found = run(step, steps=2, limit=0.21)
    assert not found.is_safe
    count, start = found.counterexample
    assert abs(float(simulate(step, start, count)[-1, 0])) > 0.21
    assert "Not safe" in describe_verdict(found)


def test_the_sine_is_met_at_its_knots_and_nearly_between():
    angles = torch.linspace(-MAX_SINE_ANGLE, MAX_SINE_ANGLE, 1001, dtype=torch.float64)[:, None]
    error = (PiecewiseSine()(angles) - angles.sin()).abs()
    assert float(error.max()) <= 0.2**2 / 8 + 1e-12
    assert float(PiecewiseSine()(torch.zeros(1, 1).double())) == pytest.approx(0.0, abs=1e-12)


def test_a_report_and_a_picture_are_made(study, tmp_path):
    names = [path.name for path in write_report(study, tmp_path)]
    assert names == ["steps.csv", "report.md"]
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 4
    figure = draw_study(study)
    assert len(figure.axes) == 2
    assert any("regions" in text.get_text() for text in figure.axes[0].get_legend().get_texts())


def test_what_is_no_step_is_refused(step):
    with pytest.raises(xl.ArgumentError, match="maps"):
        run(as_network(torch.nn.Linear(2, 1), [torch.zeros(2)]))
    with pytest.raises(xl.ArgumentError, match="cannot be repeated"):
        repeat_step(as_network(torch.nn.Linear(2, 1), [torch.zeros(2)]), 2)
    with pytest.raises(xl.ArgumentError, match="none"):
        repeat_step(step, 0)
    with pytest.raises(xl.PlaneError):
        run(step, box=((0.1, 0.1), (0.0, 1.0)))


@pytest.mark.slow
def test_the_published_loop_is_followed(data):
    step = published_step(data)
    found = run(step, steps=3, name="published")
    starts = torch.tensor([[0.1, -0.3], [-0.2, 0.4]], dtype=torch.float64)
    states = starts
    for reached in found.reached:
        states = step(states)
        assert torch.allclose(reached.plane.at(reached.plane.coordinates(starts)), states, atol=1e-11)


def test_a_file_that_is_missing_is_refused(tmp_path):
    with pytest.raises(xl.FileError):
        published_step(tmp_path)
