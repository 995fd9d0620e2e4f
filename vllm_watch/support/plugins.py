"""Finds the modules of a folder that grows often, so that adding one is adding one file."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from types import ModuleType

CONTRACT = "base"  # the module of each such folder that says what the others must be


@cache
def modules(package: str, needs: Sequence[str]) -> tuple[ModuleType, ...]:
    """Return the modules of `package` that define every name of `needs`, by name.

    What has only some of the names is a helper of the folder. The contract itself is left out.
    """
    folder = importlib.import_module(package)
    found = sorted(each.name for each in pkgutil.iter_modules(folder.__path__))
    loaded = (importlib.import_module(f"{package}.{name}") for name in found if name != CONTRACT)
    return tuple(module for module in loaded if all(hasattr(module, name) for name in needs))


def slug(module: ModuleType) -> str:
    """Return the name that stands for the module in configuration, metrics and docs."""
    return module.__name__.rpartition(".")[2]
