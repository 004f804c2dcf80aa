"""Write docs/api/*.md from the code itself: signatures with their shapes, docstrings with their examples, fields.

Run it after changing a signature or a docstring: python scripts/api_reference.py
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from api_pages import PAGES, Page

FOLDER = Path(__file__).parents[1] / "docs" / "api"
MADE = "<!-- made by scripts/api_reference.py from the code -->"
HOUSE = {  # members that other modules of the library need, and nobody else
    *("known_network", "last_use", "sourced", "evaluate", "moved", "source"),
    *("mixed", "input_points", "values_at", "extent", "records", "of", "of_line"),
}
OPTIONS = ("Settings", "Scene", "Remote")  # classes that people fill in: what they leave out is of interest
FIELD = re.compile(r"^    (\w+): (.+?)(?: = (.+?))?(?:  # (.*))?$")
INDEX = f"""# API reference

{MADE}

Everything public, by what it is for. `import exactline as xl` makes `xl.restrict` of `exactline.api`; modules are
imported when they are first used. Names that are not listed here may change without notice.
"""


def pages() -> dict[Path, str]:
    """Every page of the reference by its file."""
    made = {FOLDER / f"{page.file}.md": written(page) for page in PAGES}
    return {FOLDER / "index.md": index(made), **made}


def index(made: dict[Path, str]) -> str:
    """All names with a sentence each, by page."""
    parts = [INDEX]
    for page in PAGES:
        places = anchors(made[FOLDER / f"{page.file}.md"])
        rows = [(f"[`{n}`]({page.file}.md#{places[n]})", summary(found(n))) for n in (*page.names, *page.results)]
        parts += [f"## {page.title}\n", table(("name", "what it is"), rows)]
    return "\n".join(parts)


def written(page: Page) -> str:
    """One page."""
    parts = [f"# {page.title}", MADE, page.intro.strip()]
    for name in (*page.names, *page.results):
        parts += section(name, found(name))
    return "\n\n".join(parts) + "\n"


def section(name: str, thing: Any) -> Iterator[str]:
    """One function, or one class with its fields and members."""
    yield f"## `{name}`"
    if isinstance(thing, FunctionType):
        yield signature(thing)
        yield prose(thing)
        return
    bases = [b.__name__ for b in thing.__bases__ if b.__module__.startswith("exactline") or b in (Warning, Exception)]
    init = thing.__dict__.get("__init__")
    if (
        isinstance(init, FunctionType)
        and "__dataclass_fields__" not in vars(thing)
        and not issubclass(thing, Exception)
    ):
        yield signature(init, thing.__name__)
    elif bases:
        yield f"```pyi\nclass {thing.__name__}({', '.join(bases)})\n```"
    yield prose(thing)
    rows = list(fields(thing)) if "__dataclass_fields__" in vars(thing) else []
    if rows:
        yield table(("field", "type", "what it is"), rows).rstrip("\n")
    for label, member in members(thing):
        text = prose(member)
        if text:
            yield f"### `{thing.__name__}.{label}`"
            yield signature(member) if not is_property(thing, label) else property_type(member)
            yield text


def members(thing: type) -> Iterator[tuple[str, FunctionType]]:
    """Public methods and properties that the class itself defines."""
    for label, member in vars(thing).items():
        if label.startswith("_") or label in HOUSE:
            continue
        inner = member
        if isinstance(member, property):
            inner = member.fget
        elif isinstance(member, (staticmethod, classmethod)):
            inner = member.__func__
        elif isinstance(member, cached_property):
            inner = member.func
        if isinstance(inner, FunctionType):
            yield label, inner


def is_property(thing: type, label: str) -> bool:
    """Whether a member is asked for without brackets."""
    return isinstance(vars(thing)[label], (property, cached_property))


def property_type(member: FunctionType) -> str:
    """What a property gives."""
    return f"```pyi\n{member.__name__}: {member.__annotations__.get('return', 'Any')}\n```"


def signature(function: FunctionType, called: str | None = None) -> str:
    """The signature as it is written, with the shapes beside the arguments."""
    lines = dedent(inspect.getsource(function)).splitlines()
    node = ast.parse("\n".join(lines)).body[0]
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise TypeError(f"{function} is no function")
    text = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1]).rstrip().removesuffix(":")
    if called is not None:
        text = re.sub(r" -> None$", "", text.replace("def __init__", f"class {called}", 1))
    text = re.sub(r"^( *)self,\n", "", text, flags=re.MULTILINE)
    return f"```pyi\n{re.sub(r'[(]self(, )?', '(', text)}\n```"


def prose(thing: Any) -> str:
    """A docstring as markdown: examples become blocks of a Python session."""
    out: list[str] = []
    session: list[str] = []
    for line in [*inspect.cleandoc(thing.__doc__ or "").splitlines(), ""]:
        if line.startswith(">>>") or (session and line):
            session.append(line)
        elif session:
            out += ["```pycon", *session, "```", ""]
            session = []
        else:
            out.append(literal(line))
    return "\n".join(out).strip()


def literal(text: str) -> str:
    """Stars outside of code mean shapes and powers, not emphasis."""
    return "".join(part if i % 2 else part.replace("*", "\\*") for i, part in enumerate(re.split("(`+[^`]*`+)", text)))


def fields(thing: type) -> Iterator[tuple[str, str, str]]:
    """Fields of a dataclass with the remarks beside them in the code."""
    own = vars(thing)["__dataclass_fields__"]
    for line in inspect.getsource(thing).splitlines():
        match = FIELD.match(line)
        if match and match[1] in own and match[1] not in HOUSE and not match[1].startswith("_"):
            plain = match[3] and not match[3].startswith("field(") and thing.__name__ in OPTIONS
            usual = f" (`{match[3]}` unless said)" if plain else ""
            yield f"`{match[1]}`", f"`{match[2]}`", (literal(match[4] or "") + usual).strip()


def found(name: str) -> Any:
    """What a dotted path names; functions may hide modules of the same name."""
    parts = name.split(".")
    thing: Any = import_module(parts[0])
    for i, part in enumerate(parts[1:], 2):
        inside = getattr(thing, part, None)
        if inside is None or (i < len(parts) and not inspect.ismodule(inside) and not isinstance(inside, type)):
            inside = import_module(".".join(parts[:i]))
        thing = inside
    return thing


def summary(thing: Any) -> str:
    """The first sentence of a docstring."""
    return literal(" ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split()))


def anchors(text: str) -> dict[str, str]:
    """Where each heading of a page is, as the site names places."""
    places: dict[str, str] = {}
    for name in re.findall(r"^##+ `(.+)`$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\s-]", "", name).strip().lower()
        taken, number = slug, 0
        while taken in places.values():
            number += 1
            taken = f"{slug}_{number}"
        places[name] = taken
    return places


def table(head: tuple[str, ...], rows: list[Any]) -> str:
    """A table in markdown."""
    cells = [head, ("---",) * len(head), *([_bar(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _bar(text: str) -> str:
    """A bar in a table, also in code, which neither GitHub nor the site would show otherwise."""
    coded = re.sub(r"`([^`]*[|][^`]*)`", lambda m: f"<code>{escape(m[1])}</code>", text)
    return coded.replace("|", "&#124;")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
        print(f"wrote {path}")
