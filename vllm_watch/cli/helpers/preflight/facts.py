"""Gather a `vllm serve` command's flags, files, software and host."""

import argparse
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Flags
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.plan import Checkpoint
from vllm_watch.capacity.read_config import read_config
from vllm_watch.capacity.release import NEWEST, Release, parse_release
from vllm_watch.cli.helpers.capacity.flags import add_engine_flags, read_flags
from vllm_watch.cli.helpers.preflight.files import (
    download_room,
    find_files,
    has_token,
    is_offline,
    room,
)
from vllm_watch.cli.helpers.preflight.software import find_software
from vllm_watch.errors import ConfigError, WatchError
from vllm_watch.export.status import public_arguments
from vllm_watch.preflight.check_host import DEFAULT_PORT, port_of
from vllm_watch.preflight.command import SERVE, Command, parse, split
from vllm_watch.preflight.facts import Facts, Listener, Software
from vllm_watch.settings.yaml_text import read as read_yaml
from vllm_watch.sources import sockets
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import json_text

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - inspected, not written
_CONFIG_BYTES_MAX = 1 << 20
_SWITCHES = ("enforce-eager", "enable-lora", "language-model-only", "enable-prefix-caching")
_FILES, _SSL_FILES = ("chat-template", "tokenizer"), ("ssl-keyfile", "ssl-certfile")
_TEMPLATE = frozenset("{}\n")  # a chat template with one of these is not a path
_VALUES = (
    "max-model-len", "tensor-parallel-size", "pipeline-parallel-size",
    "data-parallel-size", "decode-context-parallel-size", "max-num-seqs", "max-num-batched-tokens",
    "kv-cache-dtype", "block-size", "dtype", "quantization", "kv-cache-memory-bytes",
    "num-gpu-blocks-override", "max-loras", "max-lora-rank", "speculative-config", "cpu-offload-gb",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WatchError(message.removeprefix("argument "), "correct the flag")


def gather(words: Sequence[str], environment: Mapping[str, str]) -> Facts:
    """Return all facts except the GPUs. Raises WatchError for programs other than vLLM, or an unreadable config file."""
    try:
        parts = split(words, environment)
    except WatchError:
        if shutil.which(words[0], path=environment.get("PATH")):
            raise
        return Facts(command=Command(tuple(words), SERVE, words[0], None), software=Software(missing=words[0]))  # fmt: skip
    path = parts.config_path
    command = parse(parts, _read_config_file(Path(path)) if path else None)
    files, found = find_files(command)
    software = find_software(command)
    release = _release(software.vllm)
    facts = Facts(
        command=command, files=files, software=software, release=release,
        shared_memory=room(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
        download_room=download_room(command), absent=_absent(command), token=has_token(command),
        offline=is_offline(command.environment),
    )  # fmt: skip
    listeners, free = find_listeners(port_of(command.text("port")) or DEFAULT_PORT)
    facts = replace(facts, listeners=listeners, free_port=free)
    if found is None:
        return facts
    try:
        model = read_config(found.config)
    except WatchError as error:
        return replace(facts, model_error=error.cause)
    return _with_flags(replace(facts, model=model, checkpoint=found.checkpoint), model)


def _with_flags(facts: Facts, model: Model) -> Facts:
    if facts.checkpoint.bytes_total is None and facts.files and facts.files.bytes_total:
        facts = replace(facts, checkpoint=Checkpoint(bytes_total=facts.files.bytes_total))
    try:
        return replace(facts, flags=_flags(facts.command, model, facts.release or NEWEST))
    except WatchError as error:
        return replace(facts, flags_error=(error.cause, error.remedy))


def _flags(command: Command, model: Model, release: Release) -> Flags:
    words = [f"--{name}={_plain(command.flags[name])}" for name in _VALUES if name in command.flags]
    words += [
        f"--{'' if command.switch(name) else 'no-'}{name}"
        for name in _SWITCHES
        if name in command.flags and (command.switch(name) or name == "enable-prefix-caching")
    ]
    parser = _Parser(add_help=False, allow_abbrev=False)
    add_engine_flags(parser)
    flags = replace(read_flags(parser.parse_args(words), model), release=release)
    asked = command.environment.get("VLLM_USE_V1")
    if asked not in ("0", "1") or release >= releases.V0_IS_GONE:
        return flags
    return replace(flags, use_v0=asked == "0")


def _plain(value: str) -> str:
    """Write a number as we read it: Python, and so vLLM, reads 1_000 as 1000."""
    return value.replace("_", "") if re.fullmatch(r"\d+(_\d+)+", value) else value


def _absent(command: Command) -> dict[str, str]:
    """Return the flags that name missing files. A relative path can be in several folders."""
    absolute = {name: command.text(name) or "" for name in _FILES}
    if command.switch("skip-tokenizer-init"):
        del absolute["tokenizer"]
    found = {name: path for name, path in absolute.items() if path.startswith("/") and not set(path) & _TEMPLATE}  # fmt: skip
    drafter = _drafter(command).get("model")
    if isinstance(drafter, str) and drafter.startswith("/"):
        found["speculative-config"] = drafter
    if command.switch("enable-lora"):
        adapters = command.text("lora-modules") or ""
        paths = [] if "{" in adapters else [each.partition("=")[2] for each in adapters.split()]
        missing = [path for path in paths if path.startswith("/") and not os.path.exists(path)]
        if missing:
            found["lora-modules"] = missing[0]
    if not command.switch("headless"):
        found |= {name: command.flags[name] for name in _SSL_FILES if name in command.flags}
    return {name: path for name, path in found.items() if not os.path.exists(path)}


def _drafter(command: Command) -> dict[str, Any]:
    try:
        found = json_text.read(command.text("speculative-config") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _release(version: str | None) -> Release | None:
    try:
        return None if version is None else parse_release(version)
    except WatchError:  # a custom build
        return None


def _read_config_file(path: Path) -> dict[str, Any]:
    try:
        data, _ = read_yaml(path, _CONFIG_BYTES_MAX)
    except ConfigError as error:
        raise WatchError(f"--config {error.cause}", error.remedy) from None
    return data


_PIDS_MAX = 100_000
_PORTS_TRIED = 100
_COMMAND_CHARACTERS = 60


def find_listeners(port: int, procfs: Path = Path("/proc")) -> tuple[tuple[Listener, ...] | None, int | None]:  # fmt: skip
    """Return the listeners on a port, or None if unknown, and the next free port."""
    try:
        found = sockets.listening(procfs / "net")
    except PermissionError:
        return None, None
    if not (procfs / "net" / "tcp").exists():
        return None, None
    taken = {each.port for each in found}
    free = next((each for each in range(port + 1, port + _PORTS_TRIED) if each not in taken), None)
    here = [each for each in found if each.port == port]
    owners = _owners({each.inode for each in here}, procfs) if here else {}
    reader = ProcReader(procfs)
    return tuple(
        Listener(address=address, port=at, pid=owners.get(inode), command=_command(reader, owners.get(inode)))
        for address, at, inode in here
    ), free  # fmt: skip


def _owners(inodes: set[int], procfs: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in sorted(int(each) for each in os.listdir(procfs) if each.isdecimal())[:_PIDS_MAX]:
        with suppress(OSError):
            for inode in sockets.held(procfs, pid) & inodes:
                found.setdefault(inode, pid)
    return found


def _command(reader: ProcReader, pid: int | None) -> str | None:
    facts = reader.read(pid) if pid is not None else None
    if facts is None:
        return None
    said = " ".join(public_arguments(facts.cmdline) or ()) or facts.name or ""
    return said if len(said) <= _COMMAND_CHARACTERS else f"{said[:_COMMAND_CHARACTERS]}…"
