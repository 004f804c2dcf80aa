"""Makes attribution classes real subclasses of captum's classes as soon as captum is imported, and never imports it.

``isinstance(ig, captum.attr.GradientAttribution)`` must hold in scripts that use both packages, while users of
exactline alone must not pay for importing captum. So each class registers the name of its counterpart. Once
``captum.attr`` has been imported, before or after exactline, the counterpart is appended to the bases of the class: its
own methods still come first. Classes and instances stay the same objects, so pickles do not depend on captum.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

CAPTUM_MODULE = "captum.attr"
ClassT = TypeVar("ClassT", bound=type)
_counterparts: dict[type, str] = {}  # names in captum.attr, of classes that are not linked yet
_lock = threading.RLock()


def counterpart_of(name: str) -> Callable[[ClassT], ClassT]:
    """Make the decorator of a class that becomes a subclass of ``captum.attr.<name>`` once captum is imported."""

    def register(cls: ClassT) -> ClassT:
        with _lock:
            _counterparts[cls] = name
        link_to_captum()
        return cls

    return register


def link_to_captum() -> None:
    """Append captum's classes to the bases of all registered classes, if captum has been imported."""
    module = sys.modules.get(CAPTUM_MODULE)
    if module is None or not _counterparts:
        return
    with _lock:
        for cls, name in list(_counterparts.items()):
            base: Any = getattr(module, name, None)
            if isinstance(base, type):  # not yet there while captum itself is being imported
                cls.__bases__ = (*cls.__bases__, base)
                del _counterparts[cls]


class _LinkingLoader(Loader):
    """Loads a module with its own loader, then links the classes."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader  # captum must not see that it was watched
        self.loader.exec_module(module)
        link_to_captum()


class _CaptumFinder(MetaPathFinder):
    """Notices the import of captum; all other imports pass by."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != CAPTUM_MODULE:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _LinkingLoader(spec.loader)
                return spec
        return None


def watch_for_captum() -> None:
    """Link the classes when captum is imported, unless it has been already."""
    if CAPTUM_MODULE not in sys.modules and not any(isinstance(f, _CaptumFinder) for f in sys.meta_path):
        sys.meta_path.insert(0, _CaptumFinder())
