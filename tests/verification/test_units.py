"""The units of a property on a .nnet file: bounds are compared with the ranges in the file."""

import json

import pytest

import exactline as xl
from exactline.verification.property import Property
from exactline.verification.units import UnitChoice, choose_units
from exactline.verification.vnnlib import read_vnnlib
from tests.cli.running import run as run  # pytest finds the fixture by its name

# y = relu(x) in normalised units, x of 100 to 300 with mean 200 and range 200
FILE = "1,1,1,1,\n1,1,\n0,\n100,\n300,\n200,0,\n200,1,\n1,\n0,\n"
PROPERTY = (
    "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 {}))(assert (<= X_0 {}))(assert (>= Y_0 {}))"
)


def box(low, high, limit=0.25):
    return Property.of([low], [high], [[-1.0]], [-limit])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.nnet"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("low", "high", "units"),
    [
        (100, 300, "physical"),
        (290, 305, "physical"),  # a little beyond the range, as rounded bounds are
        (-0.5, 0.5, "normalised"),
        (0.3, 0.5000001, "normalised"),
    ],
)
def test_the_ranges_of_the_file_tell_the_units(file, low, high, units):
    assert choose_units(file, box(low, high), None) == UnitChoice(units == "physical", units)


def test_bounds_that_fit_neither_are_refused(file):
    with pytest.raises(xl.ArgumentError, match="neither in physical nor in normalised") as error:
        choose_units(file, box(0, 300), None)
    assert "--no-normalize" in error.value.hint


def test_bounds_that_fit_both_are_refused(tmp_path):
    path = tmp_path / "wide.nnet"
    path.write_text(FILE.replace("\n100,\n300,\n200,0,\n", "\n-100,\n300,\n0,0,\n"))
    with pytest.raises(xl.ArgumentError, match="both in physical and in normalised"):
        choose_units(path, box(0, 0.5), None)


@pytest.mark.parametrize(("normalize", "units"), [(True, "physical"), (False, "normalised")])
def test_units_that_are_stated_are_used_and_a_mismatch_is_noted(file, normalize, units):
    assert choose_units(file, box(0, 300), normalize) == UnitChoice(normalize, units)
    wrong = box(-0.5, 0.5) if normalize else box(100, 300)
    assert "units only" in choose_units(file, wrong, normalize).note


def test_a_file_without_normalization_has_no_units(tmp_path):
    path = tmp_path / "plain.nnet"
    path.write_text(FILE.replace("\n200,0,\n200,1,\n", "\n0,0,\n1,1,\n"))
    assert choose_units(path, box(-1e9, 1e9), None) == UnitChoice(True)
    assert choose_units(tmp_path / "any.onnx", box(-1e9, 1e9), None) == UnitChoice(True)


def test_the_counterexample_is_in_the_units_of_the_property(file):
    normalised = xl.falsify(file, box(-0.5, 0.5), lines=20)
    assert (normalised.answer, normalised.units) == ("sat", "normalised")
    assert 0.25 <= float(normalised.x) <= 0.5
    physical = xl.falsify(file, box(100, 300), lines=20)
    assert (physical.answer, physical.units) == ("sat", "physical")
    assert 250 <= float(physical.x) <= 300
    assert "inputs in physical units" in str(physical)


def test_the_command_says_which_units_it_uses(run, file, tmp_path):
    (tmp_path / "p.vnnlib").write_text(PROPERTY.format(-0.5, 0.5, 0.25))
    status, out, err = run("falsify", "one.nnet", "p.vnnlib", "--lines", "20")
    assert (status, out.split()[0]) == (0, "sat")
    assert "inputs in normalised units" in err
    assert json.loads(run("falsify", "one.nnet", "p.vnnlib", "--lines", "20", "--json")[1])["units"] == "normalised"
    (tmp_path / "q.vnnlib").write_text(PROPERTY.format(0, 300, 0.25))
    status, out, err = run("falsify", "one.nnet", "q.vnnlib", "--lines", "20")
    assert (status, out) == (2, "")
    assert "--normalize" in err
    assert run("falsify", "one.nnet", "q.vnnlib", "--lines", "20", "--normalize")[0] == 0


@pytest.mark.parametrize("number", range(1, 11))
def test_published_properties_of_acas_xu_are_in_normalised_units(data, number):
    network = data / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet"
    prop = read_vnnlib(data / "acasxu" / "vnnlib" / f"prop_{number}.vnnlib")
    assert choose_units(network, prop, None) == UnitChoice(False, "normalised")
