"""Find the modules of a package, so that a new detector or hook needs only a new file."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from types import ModuleType

CONTRACT = "base"


@cache
def modules(package: str, needs: Sequence[str]) -> tuple[ModuleType, ...]:
    """Return the modules of `package` that define every name in `needs`, sorted by name."""
    folder = importlib.import_module(package)
    found = sorted(each.name for each in pkgutil.iter_modules(folder.__path__))
    loaded = (importlib.import_module(f"{package}.{name}") for name in found if name != CONTRACT)
    return tuple(module for module in loaded if all(hasattr(module, name) for name in needs))


def slug(module: ModuleType) -> str:
    """Return the module's name in configuration, metrics and docs."""
    return module.__name__.rpartition(".")[2]
