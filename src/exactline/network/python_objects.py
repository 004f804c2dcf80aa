"""What can be told about Python objects: the names that code reads, trusted packages, and where state is kept."""

from __future__ import annotations

import dis
import functools
import os
import sysconfig
import types
from collections import OrderedDict
from collections.abc import ItemsView
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch

DYNAMIC_ACCESS = frozenset(("getattr", "vars", "setattr", "delattr", "__dict__", "__getattribute__", "dir"))
# packages whose functions depend on their arguments only, so that their code need not be read
TRUSTED_PACKAGES = frozenset(
    (
        *("torch", "numpy", "math", "cmath", "operator", "_operator", "functools", "itertools", "collections", "enum"),
        *("typing", "abc", "contextlib", "copy", "warnings", "logging", "numbers", "dataclasses", "types", "builtins"),
        *("_functools", "_collections", "_abc", "fractions", "string", "re", "inspect", "exactline"),
    )
)
FUNCTION_TYPES = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
PLAIN_ITEMS = (dict.items, OrderedDict.items)
INSTALLED_FOLDERS = tuple(
    str(Path(sysconfig.get_path(kind))) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)
HEAP_TYPE_FLAG = 1 << 9  # Py_TPFLAGS_HEAPTYPE
POINTER_BYTES = 8


@dataclass(frozen=True, eq=False)
class CodeNames:
    """The names in a code object, including the functions and comprehensions inside it."""

    names: tuple[str, ...]  # of global variables, attributes and imported modules, sorted
    imported: frozenset[str]
    stored: tuple[str, ...]  # global variables that the code assigns or deletes
    uses_dynamic_access: bool  # whether it may read attributes whose names are computed


@functools.lru_cache(maxsize=65536)
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


@functools.lru_cache(maxsize=4096)
def is_trusted(name: Any) -> bool:
    """Whether a module belongs to a package whose functions depend on their arguments only.

    Where a name is expected, packages in C may hold other objects, which are not trusted.
    """
    return isinstance(name, str) and name.split(".", 1)[0] in TRUSTED_PACKAGES and not name.startswith("numpy.random")


@functools.lru_cache(maxsize=65536)
def is_installed(file: Any) -> bool:
    """Whether a file belongs to Python's own library or to an installed package, and not to the user's code.

    >>> is_installed(dis.__file__), is_installed("model.py"), is_installed(None)
    (True, False, False)
    """
    return isinstance(file, str) and file.startswith(INSTALLED_FOLDERS)


def module_name(module: types.ModuleType) -> str:
    """The name of an imported module; "" where something else has been assigned to it."""
    name = vars(module).get("__name__")
    return name if isinstance(name, str) else ""


def is_inside(inner: types.ModuleType, outer: types.ModuleType) -> bool:
    """Whether code may read a module through another one; other packages inside a trusted one are constant."""
    outer_name = module_name(outer)
    return not is_trusted(outer_name) or module_name(inner).split(".", 1)[0] == outer_name.split(".", 1)[0]


@functools.lru_cache(maxsize=1024)
def has_python_layout(kind: type) -> bool:
    """Whether all state of an object is in its ``__dict__`` and its slots, and none in fields of a C type."""
    if kind is types.SimpleNamespace:
        return True
    if not all(k.__flags__ & HEAP_TYPE_FLAG for k in kind.__mro__[:-1]):
        return False
    fields = len(list_slots(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= object.__basicsize__ + POINTER_BYTES * fields


@functools.lru_cache(maxsize=1024)
def list_slots(kind: type) -> tuple[str, ...]:
    """The names in the ``__slots__`` of a class and its bases."""
    return tuple(
        name for k in kind.__mro__ for name, value in vars(k).items() if isinstance(value, types.MemberDescriptorType)
    )


def is_class_data(name: str, value: Any) -> bool:
    """Whether an attribute of a class is data: neither a method nor one of Python's own."""
    if (name.startswith("__") and name.endswith("__")) or name == "_abc_impl":
        return False
    member = isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
    return not isinstance(value, FUNCTION_TYPES) and not member


def stored_items(mapping: dict[Any, Any]) -> ItemsView[Any, Any]:
    """The items that a dict holds, without calling code of a subclass, which may import or compute them.

    >>> class Squares(dict[int, int]):
    ...     def items(self):
    ...         raise RuntimeError("not now")
    >>> list(stored_items(Squares({2: 4})))
    [(2, 4)]
    """
    is_plain = type(mapping).items in PLAIN_ITEMS
    return mapping.items() if is_plain else dict.items(mapping)


def read_generator_state(generator: Any) -> Any:
    """The state of a random generator of NumPy, Python or torch."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.get_state().tolist() if isinstance(generator, torch.Generator) else generator.getstate()
