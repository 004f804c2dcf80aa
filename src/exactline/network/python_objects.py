"""What can be told about Python objects: the names that code reads, trusted packages, and where state is kept."""

from __future__ import annotations

import dis
import functools
import operator
import os
import re
import sys
import sysconfig
import types
import weakref
from collections import OrderedDict
from collections.abc import ItemsView
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch

DYNAMIC_ACCESS = frozenset(
    (
        *("getattr", "vars", "setattr", "delattr", "__dict__", "__getattribute__", "dir", "attrgetter", "methodcaller"),
        *("getmembers", "getattr_static"),
    )
)
# attributes and functions that show what is not compared: the state of the interpreter, of autograd and of functions
REFLECTIVE_NAMES = frozenset(
    (
        *("__globals__", "__subclasses__", "__annotations__", "__doc__", "f_globals", "f_locals", "f_back"),
        *("_getframe", "currentframe", "get_objects", "get_referrers", "get_referents"),
        *("grad", "grad_fn", "_version", "data_ptr", "untyped_storage"),
    )
)
# built-in functions that can read or change anything by a name that is computed, or depend on where an object lies
UNREADABLE_BUILTINS = frozenset(("eval", "exec", "globals", "locals", "open", "input", "__import__", "compile", "id"))
# functions of trusted packages that depend on more than their arguments: on files, and on settings of the process
IMPURE_NAMES = re.compile(
    r"load|load_\w+|loadtxt|genfromtxt|from_?file|fromregex|open_memmap|get_(?!default_dtype)\w+|geterr|geterrcall"
    r"|getbufsize|(is|are)_\w*enabled|initial_seed|seed|current_\w+|stack_?trace|getsource\w*|getfile"
)
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
MUTABLE_DATA = (list, dict, set, bytearray, types.SimpleNamespace, torch.Tensor, torch.nn.Module, np.ndarray)
# of trusted classes and modules: their members, and those that others have put there
_foreign_members: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], tuple[Any, ...]]] = weakref.WeakKeyDictionary()


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


def list_foreign_members(owner: Any, names: tuple[str, ...] | None = None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The members of a class or module of a trusted package, and those among them that others have put there.

    These are the functions of other packages, and data that can change.
    """
    space = vars(owner)
    members = tuple(space.values() if names is None else map(space.get, names))
    known = _foreign_members.get(owner)
    if known is None or len(known[0]) != len(members) or not all(map(operator.is_, known[0], members)):
        pairs = zip(space if names is None else names, members, strict=True)
        known = members, tuple(value for name, value in pairs if _is_foreign(name, value))
        _foreign_members[owner] = known
    return known


def _is_foreign(name: str, value: Any) -> bool:
    functions = [getattr(value, part, None) for part in ("fget", "fset", "__func__", "func")]
    for function in (value, *functions):
        if isinstance(function, types.FunctionType):
            package = str(function.__globals__.get("__name__")).split(".", 1)[0]
            if not is_trusted(package) and package not in sys.stdlib_module_names:
                return True
    return isinstance(value, MUTABLE_DATA) and not name.startswith("_")


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
