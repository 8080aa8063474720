"""Actions when others import a module that this package would import for nothing else: that may take longer than all of the package."""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_waiting: dict[str, list[Callable[[ModuleType], Any]]] = {}


def when_imported(name: str, action: Callable[[ModuleType], Any]) -> None:
    """Calls it with the module of this name: now, if it has been imported, or when it has been."""
    module = sys.modules.get(name)
    if module is not None:
        if getattr(module.__spec__, "_initializing", False):  # by another thread, which this waits for
            module = importlib.import_module(name)
        action(module)
        return
    if not _waiting:
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(action)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find, with a loader that does what waits for the module."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        spec = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_do(module: ModuleType) -> None:
                load(module)
                for action in _waiting.pop(name, ()):
                    action(module)

            spec.loader.exec_module = load_and_do  # type: ignore[method-assign]
        return spec
