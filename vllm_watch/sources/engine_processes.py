"""Find the processes of an engine on this host: its server, its core, and the workers that the core started.

The server is the process whose start time matches /metrics, or the only one whose command line has the target's port.
Source: vllm/utils/system_utils.py (set_process_title), vllm/v1/engine/core.py, proc(5).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePath

from vllm_watch.sources.processes import ProcessFacts

START_TOLERANCE_SECONDS = 2.0
"""A process's start time may differ from the start time in /metrics by this much. Boot times are
whole seconds, and setting the clock changes them."""

SAME_TICK_SECONDS = 0.02
"""Tolerance in seconds if several processes match. Start times have a resolution of 10 ms."""

PORT_DEFAULT = 8000  # of `vllm serve`
_CORE = re.compile(r"\S*::EngineCore(?:_DP(\d+))?\b")
_TITLED = re.compile(r"\S+::[A-Z]")
# Not vllm-watch, which may start at the same moment in the pod.
_VLLM = re.compile(r"vllm(?![-_]watch)", re.IGNORECASE)
_PORT = re.compile(r"--port[= ](\d+)")
_PYTHON = re.compile(r"python[\d.]*")
_WITH_VALUE = ("-W", "-X")  # of Python's options
_SERVER_MODULE = re.compile(r"(?:.*\.)?vllm\.entrypoints(?:\.\w+)*\.(?:api_server|launcher)")
_CLI_MODULE = "vllm.entrypoints.cli.main"

Processes = Mapping[int, ProcessFacts]


def arguments(argv: Iterable[str]) -> tuple[str, ...] | None:
    """Return the words after `vllm serve` or after the server's module. None if a vLLM server does not run as this."""
    words = list(argv)
    if words and _PYTHON.fullmatch(PurePath(words[0]).name):
        del words[0]
        while words and words[0].startswith("-") and words[0] != "-m":
            del words[: 2 if words[0] in _WITH_VALUE else 1]
        if words[:1] == ["-m"]:
            del words[0]
    if not words:
        return None
    module = words[0].removesuffix(".py").replace("/", ".")
    if _SERVER_MODULE.fullmatch(module):
        return tuple(words[1:])
    is_cli = PurePath(words[0]).name == "vllm" or module.endswith(_CLI_MODULE)
    return tuple(words[2:]) if is_cli and words[1:2] == ["serve"] else None


def find(
    all_: Processes, started: float | None, port: int | None, engines: Collection[str]
) -> dict[str, tuple[ProcessFacts, ...]]:
    """Return the processes of each engine, the core first. Engines with uncertain processes are left out. `started` is in Unix seconds."""
    server = _server(all_, started, port)
    if server is None:
        return {}
    parts = [each for each in descendants(server.pid, all_) if not each.has_ended]
    cores = [(each, match[1]) for each in parts if (match := _CORE.match(each.title))]
    if cores:
        return _titled(cores, all_, engines)
    if len(engines) != 1:
        return {}
    # An engine without its own processes runs in the server's process.
    unnamed = tuple(each for each in parts if _is_unnamed_part(each)) or (server,)
    return {next(iter(engines)): unnamed}


def is_core(title: str) -> bool:
    """Return True if this is the title of an engine's core process."""
    return _CORE.match(title) is not None


def of_server(
    all_: Processes, started: float | None, port: int | None, engines: Collection[str]
) -> list[ProcessFacts]:
    """Return the server's process and its engines' processes; empty if uncertain."""
    server = _server(all_, started, port)
    if server is None:
        return []
    parts = [each for of in find(all_, started, port, engines).values() for each in of]
    return [server, *(each for each in parts if each.pid != server.pid)]


def _titled(
    cores: list[tuple[ProcessFacts, str | None]], all_: Processes, engines: Collection[str]
) -> dict[str, tuple[ProcessFacts, ...]]:
    found: dict[str, tuple[ProcessFacts, ...]] = {}
    for core, rank in cores:
        engine = next(iter(engines)) if len(cores) == len(engines) == 1 else rank
        if engine is None or engine not in engines or engine in found:
            return {}
        workers = [each for each in descendants(core.pid, all_) if not each.has_ended]
        found[engine] = (core, *workers)
    return found


def _server(all_: Processes, started: float | None, port: int | None) -> ProcessFacts | None:
    fits = {pid for pid, facts in all_.items() if _may_be(facts, started, port)}
    with_core = {pid for pid in fits if any(is_core(each.title) for each in descendants(pid, all_))}
    if started is not None and with_core:
        above = set[int]().union(*(_ancestors(all_[pid], all_) for pid in with_core))
        found = [all_[pid] for pid in with_core - above]
    else:  # untitled cores and workers resemble servers, so take the topmost
        found = [all_[pid] for pid in fits if not _ancestors(all_[pid], all_) & (fits - {pid})]
    if started is not None:
        found = _narrowed(found, lambda each: started_at(each, started, SAME_TICK_SECONDS))
        found = _narrowed(found, lambda each: _port(each) == port)
    return found[0] if len(found) == 1 else None


def _narrowed(
    several: list[ProcessFacts], is_it: Callable[[ProcessFacts], bool]
) -> list[ProcessFacts]:
    return [each for each in several if is_it(each)] or several


def started_at(
    facts: ProcessFacts, started: float, seconds: float = START_TOLERANCE_SECONDS
) -> bool:
    """Return True if the process certainly started at this Unix time, give or take the seconds."""
    return facts.create_time is not None and abs(facts.create_time - started) <= seconds


def _port(facts: ProcessFacts) -> int:
    flag = _PORT.search(facts.command)
    return int(flag[1]) if flag else PORT_DEFAULT


def _may_be(facts: ProcessFacts, started: float | None, port: int | None) -> bool:
    command = facts.command
    if not _VLLM.search(command) or facts.has_ended:
        return False
    if started is not None:
        return started_at(facts, started)
    return arguments(facts.cmdline or ()) is not None and _port(facts) == port


def _is_unnamed_part(facts: ProcessFacts) -> bool:
    command = facts.command
    return not _TITLED.match(facts.title) and (
        "multiprocessing.spawn" in command or ("vllm" in command and "tracker" not in command)
    )


def _ancestors(facts: ProcessFacts, all_: Processes) -> set[int]:
    found: set[int] = set()
    parent = facts.ppid
    while parent and parent in all_ and parent not in found:
        found.add(parent)
        parent = all_[parent].ppid
    return found


def descendants(pid: int, all_: Processes) -> list[ProcessFacts]:
    """Return children, grandchildren and so on, nearest first."""
    children: dict[int | None, list[ProcessFacts]] = {}
    for facts in all_.values():
        children.setdefault(facts.ppid, []).append(facts)
    found, seen, turn = list[ProcessFacts](), {pid}, [pid]
    while turn:
        born = [
            each for parent in turn for each in children.get(parent, ()) if each.pid not in seen
        ]
        found += born
        turn = [each.pid for each in born]
        seen.update(turn)
    return found
