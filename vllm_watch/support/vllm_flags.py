"""The flags, values of flags, variables and architectures of vLLM by release, from its source archives (vllm_flags.txt)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from enum import Enum
from functools import cache
from importlib.resources import files

_Version = tuple[int, ...]
SWITCH, SEVERAL = "switch", "several"
_SIMILARITY_MIN = 0.8  # difflib ratio that allows one wrong letter or a moved word

_WORD_SIMILARITY_MIN = 0.7  # e.g. dtpye and dtype

INSTEAD = {
    "VLLM_ATTENTION_BACKEND": "--attention-backend",
    "VLLM_ALL2ALL_BACKEND": "--all2all-backend",
    "VLLM_USE_V1": "there is no other engine",
    "VLLM_TORCH_PROFILER_DIR": "--profiler-config",
    "device": "vLLM finds the device itself",
    "disable-log-requests": "requests are logged only with --enable-log-requests",
    "cuda-graph-sizes": "--cudagraph-capture-sizes",
    "disable-mm-preprocessor-cache": "--mm-processor-cache-gb 0",
    "enable-multimodal-encoder-data-parallel": "--mm-encoder-tp-mode data",
    "enable-reasoning": "--reasoning-parser alone is enough",
    "guided-decoding-backend": "--structured-outputs-config.backend",
    "num-scheduler-steps": "V1 schedules asynchronously by itself",
    "override-pooler-config": "--pooler-config",
    "rope-scaling": "--hf-overrides with rope_parameters",
    "rope-theta": "--hf-overrides with rope_parameters",
    "speculative-model": "--speculative-config",
    "num-speculative-tokens": "--speculative-config",
    "swap-space": "V1 does not swap",
    "task": "--runner, and --convert",
    "use-v2-block-manager": "there is no other block manager",
    "worker-use-ray": "--distributed-executor-backend ray",
}
"""Removed flags and their replacements."""


class Standing(Enum):
    """The status of a flag in a release."""

    KNOWN = "known"
    REMOVED = "removed"
    NOT_YET = "not yet"
    NEVER = "never"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and the releases that have it."""

    name: str
    kind: str
    spans: tuple[tuple[_Version, _Version], ...]
    shorts: tuple[str, ...]

    def within(self, release: _Version) -> bool:
        return any(first <= release <= last for first, last in self.spans)


@dataclass(frozen=True, slots=True)
class Answer:
    """A flag's status in a release."""

    standing: Standing
    releases: str = ""
    """REMOVED: the last release with the flag. NOT_YET: the first release with it. UNSURE: all releases with it."""
    removed_in: str = ""
    nearest: str | None = None
    instead: str | None = None
    exact: bool = True
    """False if the release is unknown or newer than the table."""


VARIABLE, ARCHITECTURE, VALUE = "variable:", "architecture:", "value:"
"""Kinds of names. The name of a value is FLAG=VALUE."""


@cache
def table(kind: str = "") -> tuple[Mapping[str, Flag], tuple[_Version, ...]]:
    """Return all flags by name, or the names of another kind, and the releases of the table, oldest first."""
    found: dict[str, Flag] = {}
    releases: tuple[_Version, ...] = ()
    for line in (files(__package__) / "vllm_flags.txt").read_text().splitlines():
        name, *rest = line.split()
        if name == "releases":
            releases = tuple(_numbers(each) for each in rest)
        elif name != "#" and name[: name.find(":") + 1] == kind:
            spans = [each.split("-") for each in rest[1:] if each[0] != "-"]
            name = name.removeprefix(kind)
            found[name] = Flag(
                name, rest[0], tuple((_numbers(a), _numbers(b) if b else releases[-1]) for a, b in spans),
                tuple(each for each in rest[1:] if each[0] == "-"),
            )  # fmt: skip
    return found, releases


@cache
def shorts() -> Mapping[str, str]:
    """Return the long name of each short option: -tp → tensor-parallel-size."""
    return {short: flag.name for flag in table()[0].values() for short in flag.shorts}


def is_switch(name: str) -> bool:
    """Return True if the flag takes no value."""
    flag = table()[0].get(name)
    return flag is not None and flag.kind == SWITCH


def takes_several(name: str) -> bool:
    """Return True if all words up to the next flag are values."""
    flag = table()[0].get(name)
    return flag is not None and flag.kind == SEVERAL


def look_up(name: str, version: str | None, kind: str = "") -> Answer:
    """Return the status of a flag (long, with dashes), or of a name of another kind, in a version of vLLM."""
    flags, releases = table(kind)
    near, exact = _neighbours(version)
    mine = [each for each in flags.values() if each.name in (name, name.removeprefix("no-"))]
    if not kind:  # argparse takes abbreviations
        mine = mine or [each for each in flags.values() if each.name.startswith(name)]
    if any(each.within(release) for each in mine for release in near):
        return Answer(Standing.KNOWN)
    if not mine:
        prefix, equals, value = name.rpartition("=")
        alike = {each.name for each in flags.values() if not near or any(map(each.within, near))}
        values = [
            each.removeprefix(prefix + equals) for each in alike if each.startswith(prefix + equals)
        ]
        close = get_close_matches(value, sorted(values), n=8, cutoff=_SIMILARITY_MIN)
        nearest = next((each for each in close if _is_misspelt(value, each)), None)
        return Answer(Standing.NEVER, nearest=nearest, exact=exact)
    flag = mine[0]
    first, last = flag.spans[0][0], flag.spans[-1][1]
    instead = INSTEAD.get(flag.name)
    if not near:
        stays = len(flag.spans) == 1 and last == releases[-1]
        standing = Standing.KNOWN if stays else Standing.UNSURE
        return Answer(standing, _stretches(flag, releases[-1]), instead=instead, exact=False)
    before = [end for _, end in flag.spans if end < near[0]]
    if not before:
        return Answer(Standing.NOT_YET, _text(first), exact=exact)
    after = next(each for each in releases if each > before[-1])
    return Answer(Standing.REMOVED, _text(before[-1]), _text(after), instead=instead, exact=exact)


def _is_misspelt(name: str, as_name: str) -> bool:
    """Return True if the words of the names are alike. A name with another word or number is another name."""
    if re.sub(r"\D", "", name) != re.sub(r"\D", "", as_name):
        return False
    words, others = re.split("[-_]", name), re.split("[-_]", as_name)
    if sorted(words) == sorted(others) or "".join(words) == "".join(others):
        return True
    return len(words) == len(others) and all(map(_alike, words, others))


def _alike(word: str, other: str) -> bool:
    return SequenceMatcher(None, word, other).ratio() >= _WORD_SIMILARITY_MIN


def _stretches(flag: Flag, newest: _Version) -> str:
    ranges = (
        f"from {_text(first)} on" if last == newest else f"{_text(first)} to {_text(last)}"
        for first, last in flag.spans
    )  # fmt: skip
    return " and ".join(ranges)


def _neighbours(version: str | None) -> tuple[tuple[_Version, ...], bool]:
    releases = table()[1]
    found = re.match(r"v?(\d{1,4}(?:\.\d{1,4}){1,3})(.*)", version or "")
    if found is None:
        return (), False
    asked = _numbers(found[1])
    built_between = re.match(r"[._-]?(a|b|rc|dev)\d", found[2]) or "dev" in found[2]
    if asked in releases and not built_between:
        return (asked,), True
    before = [each for each in releases if each < asked][-1:]
    after = [each for each in releases if each >= asked][:1]
    # A build between two releases has only flags of these two.
    return (*before, *after), bool(before and after)


def _numbers(text: str) -> _Version:
    return tuple(map(int, text.split(".")))


def _text(version: _Version) -> str:
    return ".".join(map(str, version))
