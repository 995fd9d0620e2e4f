"""How modules are loaded: without a collection of garbage meanwhile, and without what structlog takes along.

Importing makes some hundred thousand objects that stay for good, and hardly any garbage. The collector does
not know that, goes through all of them again and again, and takes a tenth of the time.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

_ORNAMENTS = ("rich", "better_exceptions", "greenlet")
"""What structlog imports, where it is installed: for coloured tracebacks with local variables, of which we print
plain ones, since variables hold keys (rich alone takes as long to load as a sixth of the watcher), and for threads
of another kind, which we have none of."""


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection in here; afterwards all is as it was."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def load_structlog() -> None:
    """Import it, if it was not, as if those were not installed: they can be imported afterwards."""
    hidden = [name for name in _ORNAMENTS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = cast("ModuleType", None)  # as the import system has it
    try:
        import structlog  # noqa: F401, PLC0415 - here and now
    finally:
        for name in hidden:
            del sys.modules[name]
