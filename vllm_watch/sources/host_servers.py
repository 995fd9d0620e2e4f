"""Find the vLLM servers of this host in /proc.

A server with a hidden process or an unknown port is reported as unsure, and must be confirmed over
HTTP.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from vllm_watch.sources import sockets
from vllm_watch.sources.engine_processes import PORT_DEFAULT, Processes, descendants
from vllm_watch.sources.processes import ProcessFacts
from vllm_watch.support import json_text

SERVERS_MAX = 64  # a host has up to 16 GPUs, which servers may share

_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_CLI_MODULES = ("vllm", "vllm.entrypoints.cli.main")
_TITLE = re.compile(r"VLLM::(APIServer|EngineCore)")
_GONE = ("Z", "X")
_ANY = ("0.0.0.0", "::")  # noqa: S104 - the kernel's notation


PRODUCER, CONSUMER = "kv_producer", "kv_consumer"


class HostServer(NamedTuple):
    """A server found on this host. `sure` is False if it may not be a vLLM."""

    url: str
    model: str = ""
    sure: bool = True
    kv_role: str = ""  # PRODUCER (prefill), CONSUMER (decode), "kv_both"


def find(all_: Processes, procfs: Path) -> list[HostServer]:
    """Return the servers, each URL once, sorted by port."""
    here = _listening(Path("/proc/self/net"))
    found: dict[str, HostServer] = {}
    for facts in _topmost(all_):
        for server in _servers(facts, all_, procfs, here):
            found.setdefault(server.url, server)
    usual = _url("127.0.0.1", PORT_DEFAULT)
    if any(each.port == PORT_DEFAULT for each in here):
        found.setdefault(usual, HostServer(usual, sure=False))
    by_port = sorted(found.values(), key=lambda each: (int(each.url.rpartition(":")[2]), each.url))
    return by_port[:SERVERS_MAX]


def arguments(argv: Iterable[str]) -> tuple[str, ...] | None:
    """Return the words after `vllm serve` or after the module's name. None if this is not a vLLM server."""
    words = tuple(argv)
    named = [PurePath(word).name for word in words[:2]]
    runs_python = named[:1] != [] and named[0].startswith("python")
    for at in (0, 1) if runs_python else (0,):
        if named[at : at + 1] == ["vllm"] and words[at + 1 : at + 2] == ("serve",):
            return words[at + 2 :]
    if not runs_python:
        return None
    if "-m" in words:
        at = words.index("-m")
        module, rest = "".join(words[at + 1 : at + 2]), words[at + 2 :]
        if module in _MODULES:
            return rest
        return rest[1:] if module in _CLI_MODULES and rest[:1] == ("serve",) else None
    path = "".join(words[1:2]).removesuffix(".py").replace("/", ".")
    return words[2:] if path.endswith(_MODULES) else None


def _topmost(all_: Processes) -> list[ProcessFacts]:
    fits = {}
    for pid, facts in all_.items():
        command = facts.cmdline or ()
        title = _TITLE.match(command[0]) if command else None
        owner = all_.get(facts.ppid or 0, facts) if title else facts
        if facts.state not in _GONE and (title or arguments(command) is not None):
            fits[owner.pid if title else pid] = owner
    below = {each.pid for facts in fits.values() for each in descendants(facts.pid, all_)}
    return [facts for pid, facts in fits.items() if pid not in below]


def _servers(
    facts: ProcessFacts, all_: Processes, procfs: Path, here: list[sockets.Listening]
) -> list[HostServer]:
    words = arguments(facts.cmdline or ())
    flags = _flags(words or ())
    if "uds" in flags:
        return []
    model = flags.get("served-model-name") or flags.get("model") or _positional(words or ())
    secure = "ssl-certfile" in flags or "ssl-keyfile" in flags
    port_known = words is not None and ("port" in flags or "config" not in flags)
    port = flags.get("port", str(PORT_DEFAULT))
    held = _held(facts, all_, procfs)
    at_port = [each for each in held if port_known and str(each.port) == port]
    if port_known and not at_port and port.isdecimal():
        network = _listening(procfs / str(facts.pid) / "net")
        at_port = [each for each in network if str(each.port) == port][:1]
        at_port = at_port or [sockets.Listening(flags.get("host", "127.0.0.1"), int(port), 0)]
    ours = _same_network(facts.pid, procfs, {each.inode for each in here}, at_port or held)
    urls = (_address(each, facts.pid, procfs, ours=ours) for each in at_port or held)
    made = dict.fromkeys(_url(host, number, secure=secure) for host, number in filter(None, urls))
    role = _kv_role(flags.get("kv-transfer-config", ""))
    return [HostServer(url, PurePath(model).name, bool(at_port), role) for url in made]


def _kv_role(text: str) -> str:
    try:
        return str(json_text.read(text)["kv_role"])
    except (ValueError, KeyError, TypeError):
        return ""


def _held(facts: ProcessFacts, all_: Processes, procfs: Path) -> list[sockets.Listening]:
    try:
        inodes = sockets.held(procfs, facts.pid)
        for part in descendants(facts.pid, all_):
            if "EngineCore" not in "".join((part.cmdline or ())[:1]):
                inodes |= sockets.held(procfs, part.pid)
    except OSError:
        return []
    return [each for each in _listening(procfs / str(facts.pid) / "net") if each.inode in inodes]


def _listening(net: Path) -> list[sockets.Listening]:
    try:
        return sockets.listening(net)
    except OSError:
        return []


def _same_network(
    pid: int, procfs: Path, here: set[int], listening: list[sockets.Listening]
) -> bool:
    try:
        own = os.stat("/proc/self/ns/net").st_ino
        return os.stat(procfs / str(pid) / "ns" / "net").st_ino == own
    except OSError:
        return not any(each.inode for each in listening) or any(
            each.inode in here for each in listening
        )


def _address(
    listening: sockets.Listening, pid: int, procfs: Path, *, ours: bool
) -> tuple[str, int] | None:
    address, port = listening.address, listening.port
    if address not in _ANY:
        reachable = ours or not address.startswith(("127.", "::1"))
        return (address, port) if reachable else None
    if ours:
        return "127.0.0.1", port
    outside = sorted(each for each in sockets.local_v4(procfs / str(pid) / "net") if not each.startswith("127."))  # fmt: skip
    return (outside[0], port) if outside else None


def _flags(words: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word, after in zip(words, (*words[1:], "--"), strict=False):
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            found[name.replace("_", "-")] = value if given or after.startswith("--") else after
    return found


def _positional(words: tuple[str, ...]) -> str:
    return words[0] if words and not words[0].startswith("-") else ""


def _url(host: str, port: int, *, secure: bool = False) -> str:
    return f"http{'s' * secure}://{f'[{host}]' if ':' in host else host}:{port}"
