"""Find the modules of a package, so that a new detector or hook needs only a new file."""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import ModuleType

CONTRACT = "base"


@cache
def modules(package: str, *needs: str) -> Mapping[str, ModuleType]:
    """Return the modules of `package` that define every name in `needs`, sorted by slug, their name in configuration, metrics and docs."""
    folder = importlib.import_module(package)
    found = sorted(each.name for each in pkgutil.iter_modules(folder.__path__))
    loaded = {
        slug: importlib.import_module(f"{package}.{slug}") for slug in found if slug != CONTRACT
    }
    return {slug: each for slug, each in loaded.items() if all(hasattr(each, n) for n in needs)}
