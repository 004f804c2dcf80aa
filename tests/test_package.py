"""The installed package: its version, its data, its public names, and imports without optional packages."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[1]

BARE_SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import exactline
{then}
"""
ABSENT_PACKAGES = {"safetensors", "typer", "rich", "matplotlib", "flint", "onnx", "grpc", "ray", "sklearn", "scipy"}


def run_without_optional_packages(then: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where only torch and numpy can be imported."""
    code = BARE_SCRIPT.format(absent=ABSENT_PACKAGES, then=then)
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_the_version_is_the_one_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version("exactline") == project["version"]


def test_the_example_in_the_readme_runs(tmp_path: Path):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "tensor([0.0" in run.stdout


def test_the_package_is_typed_and_small():
    package = Path(str(files("exactline")))
    assert (package / "py.typed").is_file()
    assert sum(f.stat().st_size for f in package.rglob("*.safetensors")) < 260_000


def test_import_needs_only_torch_and_numpy():
    run = run_without_optional_packages("print(exactline.__name__)")
    assert run.stderr == ""
    assert run.stdout == "exactline\n"


def test_zoo_and_plot_can_be_imported_with_only_torch_and_numpy():
    run = run_without_optional_packages(
        "import exactline.zoo, exactline.zoo.digits, exactline.plot.line, exactline.plot.tables"
    )
    assert run.stderr == ""


def test_the_digits_network_names_the_missing_package():
    run = run_without_optional_packages("""
from exactline.errors import MissingError
from exactline.zoo import digits_network
try:
    digits_network()
except MissingError as error:
    print(error.hint)
""")
    assert run.stdout == "pip install safetensors\n", run.stderr


def test_a_plot_names_the_missing_package():
    run = run_without_optional_packages("""
from exactline.errors import MissingError
from exactline.plot.line import plot_line
try:
    plot_line(None)
except MissingError as error:
    print(error.hint)
""")
    assert run.stdout == 'pip install "exactline[plot]"\n', run.stderr


def test_public_names_are_imported_on_first_use():
    code = (
        "import exactline as xl, exactline.fp_context, exactline.api\n"
        "from exactline import *\n"
        "assert xl.restrict is restrict and xl.sweep is sweep and callable(sweep) and callable(restrict)\n"
        "assert {'load', 'Network', 'exact', 'LineError'} <= {*dir(xl)} & {*globals()}\n"
        "print(hasattr(xl, 'nothing'))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("False\n", "")


def test_public_names_need_only_torch_and_numpy():
    run = run_without_optional_packages("print(all(hasattr(exactline, name) for name in exactline.__all__))")
    assert (run.stdout, run.stderr) == ("True\n", "")
