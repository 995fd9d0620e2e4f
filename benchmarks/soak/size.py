"""How much memory an object holds, with all that only it leads to."""

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

_SHARED = (
    type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType, MethodType,
)  # fmt: skip
"""What is there once, however much is watched."""


def size_bytes(*roots: Any, without: tuple[Any, ...] = ()) -> int:
    """The sum over everything that is reached from the roots; nothing of `without` is followed."""
    seen = {id(each) for each in without}
    waiting = [each for each in roots if id(each) not in seen]
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting.extend(gc.get_referents(one))
    return total
