"""The package as a stranger meets it: its version, its data, and an import with next to nothing installed."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[1]

BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import exactline
{then}
"""
ABSENT = {"safetensors", "typer", "rich", "matplotlib", "plotly", "flint", "onnx", "grpc", "ray", "sklearn", "scipy"}


def run_bare(then: str) -> subprocess.CompletedProcess[str]:
    code = BARE.format(absent=ABSENT, then=then)
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_the_version_is_the_one_in_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert version("exactline") == project["version"]


def test_the_readme_s_example_runs(tmp_path: Path):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tensor([0.0" in done.stdout


def test_the_package_is_typed_and_small():
    package = Path(str(files("exactline")))
    assert (package / "py.typed").is_file()
    assert sum(f.stat().st_size for f in package.rglob("*.safetensors")) < 260_000


def test_import_needs_only_torch_and_numpy():
    done = run_bare("print(exactline.__name__)")
    assert done.stderr == ""
    assert done.stdout == "exactline\n"


def test_every_module_of_zoo_and_view_imports_with_only_torch_and_numpy():
    done = run_bare("import exactline.zoo, exactline.zoo.digits, exactline.plot.line, exactline.plot.origins_table")
    assert done.stderr == ""


def test_the_digits_say_what_is_missing():
    done = run_bare("""
from exactline.errors import MissingError
from exactline.zoo import digits_network
try:
    digits_network()
except MissingError as error:
    print(error.hint)
""")
    assert done.stdout == "pip install safetensors\n", done.stderr


def test_a_picture_says_what_is_missing():
    done = run_bare("""
from exactline.errors import MissingError
from exactline.plot.line import plot_line
try:
    plot_line(None)
except MissingError as error:
    print(error.hint)
""")
    assert done.stdout == 'pip install "exactline[plot]"\n', done.stderr


def test_names_of_the_package_come_when_asked_for():
    code = (
        "import exactline as xl, exactline.fp_context, exactline.api\n"
        "from exactline import *\n"
        "assert xl.restrict is restrict and xl.sweep is sweep and callable(sweep) and callable(restrict)\n"
        "assert {'load', 'Network', 'exact', 'LineError'} <= {*dir(xl)} & {*globals()}\n"
        "print(hasattr(xl, 'nothing'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_names_of_the_package_need_only_torch_and_numpy():
    done = run_bare("print(all(hasattr(exactline, name) for name in exactline.__all__))")
    assert (done.stdout, done.stderr) == ("True\n", "")
