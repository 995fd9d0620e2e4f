"""Every regular expression of the package under texts made to be slow: CPU time may grow with a text, not with its square.

Each meets repetitions of its own pieces, a text four times as long the second time, as the package uses it: one that it
only matches from the beginning is not searched for. Ends with status 1 where the longer one takes over ten times as long.
"""

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import vllm_watch

SHORT_CHARACTERS, LONG_CHARACTERS = 64 << 10, 256 << 10
OTHERS = ("vllm_watch.diagnosis.", "vllm_watch.lab.", "vllm_watch.capacity.")
"""Of a log no line over 16 KB is read, and tests/diagnosis/test_patterns_are_quick.py tries those; the others read our own."""

GROWTH_MAX = 10  # 4 for a line, 16 for a square
SECONDS_MIN = 0.02  # below it a clock says nothing
FILLERS = ("a", " ", "a.", "-", ":", '"', "=")


SOURCE = {file: file.read_text() for file in Path(vllm_watch.__file__).parent.rglob("*.py")}


def searched(module: str, name: str) -> bool:
    """Is what has this name looked for anywhere in a text? What is never used by its name is taken to be."""
    own = Path(str(importlib.import_module(module).__file__))
    source = SOURCE[own] if name.startswith("_") else "".join(SOURCE.values())
    uses = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", source))
    return not uses or not uses <= {"match", "fullmatch"}


def patterns() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Each with the module that has it, and its name there ("" within a record)."""
    seen: set[int] = set()
    for module in pkgutil.walk_packages(vllm_watch.__path__, "vllm_watch."):
        if module.name.endswith("__main__") or module.name.startswith(OTHERS):
            continue
        stack = list(vars(importlib.import_module(module.name)).items())
        while stack:
            name, value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, re.Pattern):
                if isinstance(value.pattern, str):
                    yield module.name, name, value
            elif isinstance(value, tuple | list | frozenset):
                stack.extend(("", each) for each in value)
            elif isinstance(value, dict):
                stack.extend(("", each) for each in value.values())
            elif type(value).__module__.startswith("vllm_watch."):
                slots = [
                    getattr(value, slot, None) for slot in getattr(type(value), "__slots__", ())
                ]
                stack.extend(
                    ("", each) for each in (*slots, *getattr(value, "__dict__", {}).values())
                )


def texts(pattern: str) -> set[str]:
    """Pieces to be repeated: of the expression's own words, alone and with what may stand between them."""
    words = set(re.findall(r"[A-Za-z0-9_:/@ -]{2,}", pattern))
    words |= {each.replace("\\", "") for each in re.findall(r"(?:\\.|[\w :/@'\"=-])+", pattern)}
    return {word + filler for word in words if word for filler in ("", *FILLERS)} | set(FILLERS)


def seconds(pattern: re.Pattern[str], text: str, *, anywhere: bool) -> float:
    """CPU time to look for it everywhere in the text, or to match all of it."""
    began = time.process_time()
    if anywhere:
        for _ in pattern.finditer(text):
            pass
    else:
        pattern.fullmatch(text)
        pattern.match(text)
    return time.process_time() - began


def main() -> int:
    """Print what grows too fast."""
    count, slow = 0, 0
    for module, name, pattern in patterns():
        count += 1
        anywhere = not name or searched(module, name)
        for piece in texts(pattern.pattern):
            text = piece * (LONG_CHARACTERS // len(piece))
            first = seconds(pattern, text[:SHORT_CHARACTERS], anywhere=anywhere)
            if first < SECONDS_MIN:
                continue
            if seconds(pattern, text, anywhere=anywhere) > GROWTH_MAX * first:
                slow += 1
                print(
                    f"{module}: {pattern.pattern[:80]!r} with {piece!r}: {first:.2f} s for {SHORT_CHARACTERS} characters"
                )
    print(f"{count} expressions, {slow} slow")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
