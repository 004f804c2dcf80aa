"""The names that a function's code reads, imports and stores."""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass
from types import CodeType

DYNAMIC_ACCESS = frozenset(("getattr", "vars", "setattr", "delattr", "__dict__", "__getattribute__", "dir"))


@dataclass(frozen=True, eq=False)
class CodeNames:
    """The names in a code object, including the functions and comprehensions inside it."""

    names: tuple[str, ...]  # of global variables, attributes and imported modules, sorted
    imported: frozenset[str]
    stored: tuple[str, ...]  # global variables that the code assigns or deletes
    uses_dynamic_access: bool  # whether it may read attributes whose names are computed


@functools.lru_cache(maxsize=4096)
def read_code_names(code: CodeType) -> CodeNames:
    """List the names in a code object.

    >>> def scale(x):
    ...     return x * LIMITS.upper
    >>> read_code_names(scale.__code__).names
    ('LIMITS', 'upper')
    """
    names, imported, stored = set(code.co_names), set[str](), set[str]()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            imported.add(instruction.argval)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            stored.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = read_code_names(constant)
            names.update(inner.names)
            imported.update(inner.imported)
            stored.update(inner.stored)
    return CodeNames(
        tuple(sorted(names)), frozenset(imported), tuple(sorted(stored)), not names.isdisjoint(DYNAMIC_ACCESS)
    )
