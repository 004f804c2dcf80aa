"""Run the code of a page, and compare what it prints with the output blocks of the page."""

import ast
import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from typer.testing import CliRunner

from exactline import cli
from tests.docs.pages import Block, blocks, commands, name

OUTPUT = "output"  # the language of a block that holds what the block before it prints
TINY = 1e-9  # numbers below are rounding errors: any of them matches any other
# Relative: processors round the weights that torch draws in float32 differently, by 6e-8, and networks amplify that.
WEIGHT_ROUNDING = 1e-5
DURATION = re.compile(r"\b\d[\d.,]*(?:e[+-]?\d+)? ?(?:µs|ms|s|min|seconds)\b")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\d|\d)(?:\.\d*)?(?:e[-+]?\d+)?(?![\w])|(?<![\w.])[-+]?\.\d+")
SPACES = re.compile(r"\s+")
BORDER = re.compile(r"[━─]+")  # of a table; as long as the longest number of its column
PICTURES = {".png", ".svg"}
WATCH = "__watch__"
FOR_EFFECT = {"load_state_dict", "manual_seed", "save_picture", "step", "to_html", "write_text"}  # and fill_, copy_ ...

NNET = """// four inputs, three hidden units, two outputs
2,4,2,4,
4,3,2,
0,
-9,-9,-9,-9,
9,9,9,9,
0,0,0,0,0,
1,1,1,1,1,
1,-1,0.5,0,
0,1,1,-1,
-1,0.25,0,1,
0.5,
-0.25,
0,
1,-1,0.5,
-1,1,1,
0,
0.1,
"""


@dataclass(frozen=True)
class Printed:
    """What a block of code prints, beside what the page says it does."""

    block: Block
    actual: str
    shown: Block | None  # the output block behind it
    dropped: tuple[str, ...] = ()  # expressions whose values nobody sees
    pictures: tuple[Path, ...] = ()  # files that the block wrote


def run_page(page: Path, folder: Path) -> list[Printed]:
    """Run all blocks of Python of a page, and commands whose output it shows, in a folder that is the current one.

    Raises what a block raises, and AssertionError if a command fails.
    """
    (folder / "net.nnet").write_text(NNET)
    torch.manual_seed(0)
    space: dict[str, object] = {"__name__": "__main__"}
    every = blocks(page)
    printed: list[Printed] = []
    for block, after in zip(every, [*every[1:], None], strict=True):
        shown = after if after is not None and after.language == OUTPUT else None
        if block.language == "python":
            before = _pictures(folder)
            dropped: list[str] = []
            actual = _run_python(block, space, dropped.append)
            written = tuple(path for path, time in _pictures(folder).items() if before.get(path) != time)
            printed.append(Printed(block, actual, shown, tuple(dropped), written))
        elif block.language == "sh" and (shown is not None or name(page) in RUN):
            printed.append(Printed(block, _run_commands(block), shown))
    return printed


RUN = {"docs/quickstart.md", "docs/formats.md", "docs/planes.md", "docs/report.md"}  # pages whose commands are all run
SKIP = {"exactline doctor"}  # tested by itself, and it takes seconds


def _run_python(block: Block, space: dict[str, object], drop: Callable[[str], object]) -> str:
    padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
    tree = ast.fix_missing_locations(_Watch().visit(ast.parse(padded)))
    space[WATCH] = lambda source, value: drop(source) if value is not None else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, str(block.page), "exec"), space)
    return out.getvalue()


class _Watch(ast.NodeTransformer):
    """Report statements that are nothing but an expression, unless they are calls for an effect."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node  # what functions of a page do inside is theirs

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value.func if isinstance(node.value, ast.Call) else None
        method = call.attr if isinstance(call, ast.Attribute) else call.id if isinstance(call, ast.Name) else ""
        if method.endswith("_") or method in FOR_EFFECT:
            return node
        watch = ast.Call(ast.Name(WATCH, ast.Load()), [ast.Constant(ast.unparse(node.value)), node.value], [])
        return ast.copy_location(ast.Expr(watch), node)


def _pictures(folder: Path) -> dict[Path, int]:
    """When each picture in a folder was written."""
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.suffix in PICTURES}


def _run_commands(block: Block) -> str:
    said: list[str] = []
    for words in commands(block):
        if " ".join(words) not in SKIP:
            result = CliRunner().invoke(cli.app, words[1:], env={"COLUMNS": "100"})
            assert result.exit_code == 0, f"{block}: {' '.join(words)}: {result.exception}"
            said.append(result.stdout)
    return "".join(said)


def tidy(text: str) -> str:
    """Drop spaces at the ends of lines and empty lines around a text."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).rstrip() + "\n"


def agree(actual: str, shown: str) -> bool:
    """Tell whether two outputs are the same but for durations and the last digit of numbers.

    A number may differ from the shown one by one and a half units of the last digit shown, or by what the rounding of
    random weights moves it. Numbers below 1e-9 are rounding errors and match each other.
    """
    first, second = (SPACES.sub(" ", BORDER.sub("-", DURATION.sub("<time>", text))).strip() for text in (actual, shown))
    if NUMBER.sub("#", first) != NUMBER.sub("#", second):
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(_close(a, b) for a, b in pairs)


def _close(actual: str, shown: str) -> bool:
    values = [float(text.replace(",", "")) for text in (actual, shown)]
    if max(map(abs, values)) < TINY:
        return True
    last_digit = max(_last_digit(actual), _last_digit(shown))
    by_weights = WEIGHT_ROUNDING * max(map(abs, values)) if last_digit else 0.0
    return abs(values[0] - values[1]) <= max(1.5 * last_digit, by_weights)


def _last_digit(text: str) -> float:
    """The value of one unit in the last digit of a number; 0 for an integer, which must be the same."""
    mantissa, _, exponent = text.replace(",", "").partition("e")
    decimals = len(mantissa.partition(".")[2])
    if not exponent and not decimals:
        return 0.0
    return 10.0 ** (int(exponent or 0) - decimals)
