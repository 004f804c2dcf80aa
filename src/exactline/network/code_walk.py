"""The part of a walk over state that follows code: functions, the names that they read, modules and classes."""

from __future__ import annotations

import abc
import builtins
import functools
import sys
import types
from typing import Any

from .python_objects import (
    DYNAMIC_ACCESS,
    FUNCTION_TYPES,
    IMPURE_NAMES,
    REFLECTIVE_NAMES,
    UNREADABLE_BUILTINS,
    CodeNames,
    is_class_data,
    is_inside,
    is_installed,
    is_trusted,
    list_foreign_members,
    module_name,
    read_code_names,
)

CONSTRUCTORS = frozenset(("__init__", "__new__", "__post_init__"))
CLASS_ACCESS = frozenset(("type", "__class__"))  # which reach the constructor of a class that code does not name
COPY_METHODS = frozenset(
    (
        *("__copy__", "__deepcopy__", "__replace__", "__getstate__", "__setstate__", "__getnewargs__"),
        *("__getnewargs_ex__", "__reduce__", "__reduce_ex__"),
    )
)
COPY_CALLS = frozenset(("copy", "deepcopy", "replace", "dumps", "loads", "dump", "load"))  # that call such methods
# special methods that nothing calls during a forward pass: they run where a class is made
IDLE_METHODS = frozenset(("__init_subclass__", "__subclasshook__", "__class_getitem__", "__set_name__"))


class CodeWalk(abc.ABC):
    """Summarizes code by content, together with whatever it can read or call."""

    def __init__(self, recorder: Any = None) -> None:
        self.is_complete = True
        self.recorder = recorder  # a StateRecorder that is told about every mutable object
        self.numbers: dict[int, int] = {}  # of the objects seen, by id
        self.names: set[str] = set()  # that the code seen so far reads
        self.classes: list[type] = []  # the user's classes seen so far
        self.modules: list[types.ModuleType] = []  # the user's modules of Python seen so far
        self.constructed: set[type] = set()  # classes that the code names, so that it may call their constructors
        self.summarized_members: set[tuple[int, str]] = set()  # of classes and modules, by id
        self.summarized_classes: set[type] = set()
        self.module_reads: dict[tuple[int, CodeNames], int] = {}  # imported modules that code reads, by id and names

    @abc.abstractmethod
    def summarize(self, value: Any) -> Any:
        """Summarize any object by its content."""

    @abc.abstractmethod
    def _summarize_dict(self, value: dict[Any, Any]) -> Any: ...

    @abc.abstractmethod
    def _register(self, value: Any) -> None: ...

    def _give_up(self, value: Any) -> Any:
        self.is_complete = False
        return "unknown", type(value).__name__

    def _is_undecided(self) -> bool:
        """Whether nothing that is still to come can prove that the module is unchanged."""
        return not self.is_complete and self.recorder is None

    def _is_beyond_recording(self, namespace: dict[str, Any]) -> bool:
        """Whether to leave a namespace out: the state of installed packages is not the user's, and is not restored."""
        return self.recorder is not None and is_installed(namespace.get("__file__"))

    def summarize_reachable(self) -> tuple[Any, ...]:
        """Summarize what the code seen so far can call or read by name, and what that code can in turn.

        That is: methods of the user's classes, and members of the user's modules that were passed as values.
        """
        summaries: list[Any] = []
        size = -1
        while size != len(summaries) and not self._is_undecided():
            size = len(summaries)
            for kind in list(self.classes):
                for name, value in list(vars(kind).items()):
                    if (id(kind), name) not in self.summarized_members and self._is_reachable(kind, name, value):
                        self.summarized_members.add((id(kind), name))
                        summaries.append((self.numbers[id(kind)], name, self.summarize(value)))
            for module in list(self.modules):
                for name in sorted(self.names & vars(module).keys()):
                    if (id(module), name) not in self.summarized_members:
                        summaries.append(self._summarize_member(module, name, vars(module)[name]))
        return tuple(summaries)

    def _summarize_member(self, module: types.ModuleType, name: str, value: Any) -> Any:
        self.summarized_members.add((id(module), name))
        if isinstance(value, types.ModuleType):
            return module_name(module), name, self._summarize_loose_module(value)
        return module_name(module), name, self.summarize(value)

    def _is_reachable(self, kind: type, name: str, value: Any) -> bool:
        if name in CONSTRUCTORS:
            return kind in self.constructed or not self.names.isdisjoint(CLASS_ACCESS | COPY_CALLS)
        if not isinstance(value, FUNCTION_TYPES) and not callable(value):
            return False  # data, which _summarize_class has covered
        if name in COPY_METHODS and self.names.isdisjoint(COPY_CALLS):
            return name in self.names
        is_special = name.startswith("__") and name.endswith("__")
        return (
            name == "forward"
            or name in self.names
            or (is_special and name not in IDLE_METHODS)
            or not self.names.isdisjoint(DYNAMIC_ACCESS)
        )

    def _summarize_function(self, function: types.FunctionType) -> Any:
        code = function.__code__
        names = read_code_names(code)
        cells = tuple(
            self._summarize_cell(name, cell, names)
            for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        )
        own = self.summarize(function.__defaults__), self.summarize(function.__kwdefaults__), cells
        extra = self._summarize_dict(function.__dict__) if function.__dict__ else None
        if is_trusted(function.__globals__.get("__name__")):
            if IMPURE_NAMES.fullmatch(function.__qualname__):
                self.is_complete = False
            return code, own, extra
        if self._is_beyond_recording(function.__globals__):
            return code, own, extra
        if self.recorder is not None:
            self.recorder.record_globals(function.__globals__, names.stored)
        if not REFLECTIVE_NAMES.isdisjoint(names.names):
            self.is_complete = False
        self.names.update(names.names)
        return code, function.__name__, own, extra, self._summarize_globals(function.__globals__, names)

    def _summarize_cell(self, name: str, cell: Any, names: CodeNames) -> Any:
        if self.recorder is not None:
            self.recorder.record_cell(cell)
        try:
            value = cell.cell_contents
        except ValueError:
            return "empty"
        if isinstance(value, types.ModuleType):
            return self._summarize_module_object(value, names)
        if name == "__class__" and isinstance(value, type):  # of super()
            return self._summarize_class(value)
        return self.summarize(value)

    def _summarize_globals(self, namespace: dict[str, Any], names: CodeNames) -> Any:
        if self._is_undecided():
            return ()
        summaries: list[Any] = []
        for name in names.names:
            if name in namespace:
                value = namespace[name]
            elif name in sys.modules and name in names.imported:
                value = sys.modules[name]
            else:
                if name in UNREADABLE_BUILTINS and hasattr(builtins, name):
                    summaries.append(self._give_up(name))
                continue
            if isinstance(value, types.ModuleType):
                summaries.append((name, self._summarize_module_object(value, names)))
            else:
                summaries.append((name, self.summarize(value)))
        return tuple(summaries)

    def _summarize_module_object(self, module: types.ModuleType, names: CodeNames) -> Any:
        """Summarize what code with these names can read from an imported module and, once each, those inside it."""
        space = vars(module)
        number = self.module_reads.get((id(module), names))
        if number is not None or self._is_undecided() or self._is_beyond_recording(space):
            return "seen", number
        self.module_reads[id(module), names] = len(self.module_reads)
        is_users = not is_trusted(module_name(module))
        if is_users:
            self.modules.append(module)  # the code may pass it to other code
        if self.recorder is not None:
            self.recorder.record_globals(space, [n for n in names.names if is_users or n not in space])
        summaries: list[Any] = [module_name(module)]
        for name in tuple(space) if names.uses_dynamic_access and is_users else (*names.names, "__getattr__"):
            if name == "__builtins__" or (name == "__getattr__" and not is_users):
                continue
            if name not in space:
                if type(module) is not types.ModuleType and hasattr(type(module), name):  # such as torch.backends.cudnn
                    summaries.append((name, self.summarize(getattr(module, name))))
                continue
            value = space[name]
            if not isinstance(value, types.ModuleType):
                self.summarized_members.add((id(module), name))
                summaries.append((name, self.summarize(value)))
            elif is_inside(value, module):
                self.summarized_members.add((id(module), name))
                summaries.append((name, self._summarize_module_object(value, names)))
        return tuple(summaries)

    def _summarize_loose_module(self, module: types.ModuleType) -> Any:
        return module_name(module) if is_trusted(module_name(module)) else self._give_up(module)

    def _summarize_named_class(self, kind: type) -> Any:
        """A class that code refers to, and may create objects of."""
        self.constructed.add(kind)
        return self._summarize_class(kind)

    def _summarize_class(self, kind: type) -> Any:
        number = self.numbers.get(id(kind))
        if number is not None and kind in self.summarized_classes:
            return "seen", number
        if number is None:
            self._register(kind)
        self.summarized_classes.add(kind)
        if kind.__module__ == "builtins":
            return kind
        if is_trusted(kind.__module__) or kind.__module__.split(".", 1)[0] in sys.stdlib_module_names:
            own: Any = (kind, *self.summarize_trusted(kind))
        else:
            self.classes.append(kind)
            if self.recorder is not None:
                self.recorder.record_class(kind)
            own = (
                *(kind.__name__, kind.__qualname__, kind.__module__),
                tuple(
                    (name, self.summarize(value))
                    for name, value in list(vars(kind).items())
                    if is_class_data(name, value)
                ),
            )
        bases = tuple(self._summarize_class(base) for base in kind.__mro__[1:])
        meta = type(kind)
        return own, bases, None if is_trusted(meta.__module__) else self._summarize_class(meta)

    def summarize_trusted(self, owner: Any, names: tuple[str, ...] | None = None) -> tuple[Any, ...]:
        """The members of a class or module of a trusted package, and the content of those that the user has put in."""
        members, foreign = list_foreign_members(owner, names)
        return members, tuple(self.summarize(value) for value in foreign)

    def _summarize_partial(self, value: functools.partial[Any]) -> Any:
        own = self._summarize_class(type(value)), self._summarize_dict(vars(value)) if vars(value) else None
        return own, self.summarize(value.func), self.summarize(value.args), self.summarize(value.keywords)

    def _summarize_method(self, value: types.MethodType) -> Any:
        return "method", self.summarize(value.__func__), self.summarize(value.__self__)

    def _summarize_builtin(self, value: Any) -> Any:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            if isinstance(owner, type) and not is_trusted(owner.__module__) and owner not in self.constructed:
                return self._give_up(value)  # such as datetime.now
            return value.__name__, self.summarize(owner)
        is_impure = value.__name__ in UNREADABLE_BUILTINS or IMPURE_NAMES.fullmatch(value.__name__)
        if is_impure or not is_trusted(value.__module__ or "torch"):
            return self._give_up(value)
        return "builtin", value

    def _summarize_descriptor(self, value: Any) -> Any:
        if isinstance(value, property):
            return tuple(self.summarize(f) for f in (value.fget, value.fset, value.fdel))
        return type(value), self.summarize(
            value.func if isinstance(value, functools.cached_property) else value.__func__
        )
