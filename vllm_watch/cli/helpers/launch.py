"""Gather the facts of a `vllm serve` command: flags, model files, software and host."""

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
from vllm_watch.capacity.units import BYTES_MAX, is_size, shown
from vllm_watch.cli.helpers import checkpoints
from vllm_watch.cli.helpers.checkpoints import Found, find_checkpoint
from vllm_watch.cli.helpers.engine_flags import FLAGS, add_engine_flags, read_flags
from vllm_watch.cli.helpers.launch_software import find_software
from vllm_watch.errors import ConfigError, WatchError
from vllm_watch.export.status import public_arguments
from vllm_watch.preflight.check_host import DEFAULT_PORT, port_of
from vllm_watch.preflight.command import SERVE, Command, parse, read_object, split
from vllm_watch.preflight.facts import (
    ABSENT,
    CACHE,
    FOLDER,
    REMOTE,
    Facts,
    Listener,
    ModelFiles,
    Room,
    Software,
)
from vllm_watch.settings.yaml_text import read as read_yaml
from vllm_watch.sources import sockets
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import json_text, regular_file

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - inspected, not written
_CONFIG_BYTES_MAX = 1 << 20
_SWITCHES = ("enforce-eager", "enable-lora", "language-model-only", "enable-prefix-caching")
_FILES, _SSL_FILES = ("chat-template", "tokenizer"), ("ssl-keyfile", "ssl-certfile")
_TEMPLATE = frozenset("{}\n")  # a chat template with one of these is not a path
_NAMES = (names.partition(",")[0].removeprefix("--") for names, *_ in FLAGS)
_VALUES = [name for name in _NAMES if name not in ("vllm-version", "gpu-memory-utilization")]


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
        return Facts(command=Command(tuple(words), SERVE, words[0]), software=Software(missing=words[0]))  # fmt: skip
    path = parts.config_path
    command = parse(parts, _read_config_file(Path(path)) if path else None)
    files, found = _find_files(command)
    software = find_software(command)
    listeners, free = _find_listeners(port_of(command.text("port")) or DEFAULT_PORT)
    facts = Facts(
        command=command, files=files, software=software, release=_release(software.vllm),
        shared_memory=_room(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None,
        download_room=_room(_caches(command)[0]), absent=_absent(command), token=_has_token(command),
        offline=any(_is_true(command.environment.get(name)) for name in _OFFLINE),
        listeners=listeners, free_port=free,
    )  # fmt: skip
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
    drafter = read_object(command.text("speculative-config")).get("model")
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


def _release(version: str | None) -> Release | None:
    with suppress(WatchError):  # a custom build
        return None if version is None else parse_release(version)
    return None


def _read_config_file(path: Path) -> dict[str, Any]:
    try:
        data, _ = read_yaml(path, _CONFIG_BYTES_MAX)
    except ConfigError as error:
        raise WatchError(f"--config {error.cause}", error.remedy) from None
    return data


_PROCFS = Path("/proc")
_PIDS_MAX = 100_000
_PORTS_TRIED = 100
_COMMAND_CHARACTERS = 60


def _find_listeners(port: int) -> tuple[tuple[Listener, ...] | None, int | None]:
    """Return the listeners on a port, or None if unknown, and the next free port."""
    try:
        found = sockets.listening(_PROCFS / "net")
    except PermissionError:
        return None, None
    if not (_PROCFS / "net" / "tcp").exists():
        return None, None
    taken = {each.port for each in found}
    free = next((each for each in range(port + 1, port + _PORTS_TRIED) if each not in taken), None)
    here = [each for each in found if each.port == port]
    owners = _owners({each.inode for each in here}) if here else {}
    return tuple(
        Listener(address=address, port=at, pid=owners.get(inode), command=_command(owners.get(inode)))
        for address, at, inode in here
    ), free  # fmt: skip


def _owners(inodes: set[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid in sorted(int(each) for each in os.listdir(_PROCFS) if each.isdecimal())[:_PIDS_MAX]:
        with suppress(OSError):
            for inode in sockets.held(_PROCFS, pid) & inodes:
                found.setdefault(inode, pid)
    return found


def _command(pid: int | None) -> str | None:
    facts = ProcReader(_PROCFS).read(pid) if pid is not None else None
    if facts is None:
        return None
    said = " ".join(public_arguments(facts.cmdline) or ()) or facts.name or ""
    return said if len(said) <= _COMMAND_CHARACTERS else f"{said[:_COMMAND_CHARACTERS]}…"


_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json", "tokenizer*.py", "tokenization*.py", "*.vocab", "spiece*", "tokenizer.*")  # fmt: skip
_LFS = b"version https://git-lfs"
_HEADER_BYTES_MAX = 100_000_000  # the limit of safetensors
_INDEX_BYTES_MAX = 16 << 20
_FILES_MAX = 2000
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def _find_files(command: Command) -> tuple[ModelFiles | None, Found | None]:
    """Return the model's files and config."""
    named = command.model
    if named is None:
        return None, None
    if "://" in named or _is_true(command.environment.get("VLLM_USE_MODELSCOPE")):
        return ModelFiles(kind=REMOTE, path=named), None
    try:
        return _find(command, named)
    except (OSError, RuntimeError) as error:  # e.g. a name too long
        cause = f"{shown(named)} cannot be read: {getattr(error, 'strerror', None) or error}"
        return ModelFiles(kind=FOLDER, path=named, config_error=cause), None


def _find(command: Command, named: str) -> tuple[ModelFiles | None, Found | None]:
    environment, path = command.environment, Path(named).expanduser()
    if path.is_dir():
        return _looked_at(path, FOLDER, None, environment)
    if path.is_file():
        size = path.stat().st_size
        return ModelFiles(kind=FOLDER, path=named, weights=1, bytes_total=size, bytes_here=size), None  # fmt: skip
    if not _REPOSITORY.fullmatch(named) or ":" in named:
        return ModelFiles(kind=ABSENT, path=str(path)), None
    caches = _caches(command)
    for cache in caches:
        snapshot = checkpoints.snapshot(cache, named, command.text("revision"))
        if snapshot is not None:
            return _looked_at(snapshot, CACHE, named, environment)
    return ModelFiles(kind=ABSENT, path=str(caches[-1]), repository=named), None


def _is_true(variable: str | None) -> bool:
    return (variable or "").upper() in ("1", "ON", "YES", "TRUE")


def _has_token(command: Command) -> bool:
    """Return True if there is a hub token."""
    environment = command.environment
    if command.text("hf-token") not in (None, "true"):
        return True
    if environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN"):
        return True
    stored = environment.get("HF_TOKEN_PATH") or checkpoints.hub_home(environment) / "token"
    return Path(stored).expanduser().is_file()


def _room(path: Path) -> Room | None:
    """Return the free space at a path, which need not exist."""
    here = path
    while not here.exists() and here != here.parent:
        here = here.parent
    try:
        known = os.statvfs(here)
    except OSError:
        return None
    return Room(
        path=str(path),
        total_bytes=known.f_blocks * known.f_frsize,
        free_bytes=known.f_bavail * known.f_frsize,
        writable=os.access(here, os.W_OK),
    )


def _caches(command: Command) -> list[Path]:
    named, hub = command.text("download-dir"), checkpoints.hub_cache(command.environment)
    return [Path(named).expanduser(), hub] if named else [hub]


def _looked_at(
    folder: Path, kind: str, repository: str | None, environment: Mapping[str, str]
) -> tuple[ModelFiles, Found | None]:
    found, error = None, None
    if (folder / "config.json").exists() or not (folder / "params.json").exists():
        try:
            found = find_checkpoint(str(folder), environment, from_hub=False, weights_gib=None)
        except WatchError as wrong:
            error = wrong.cause
    config = found.config if found else None
    origin = str((config or {}).get("_name_or_path") or "")
    if repository is None and "/" in origin and _REPOSITORY.fullmatch(origin):
        repository = origin
    expected, total = _index(folder)
    missing = tuple(name for name in expected if not os.path.isfile(folder / name))
    present = [folder / name for name in expected if name not in missing]
    present = present if expected else checkpoints.weights(folder)
    size = sum(map(checkpoints.file_bytes, present))
    return ModelFiles(
        kind=kind, path=str(folder), config=config, config_error=error, weights=len(present),
        bytes_total=total or size or None, bytes_here=size,
        missing=missing,
        damaged=tuple(text for each in present if (text := _damage(each)) is not None),
        tokenizer=any(any(folder.glob(pattern)) for pattern in _TOKENIZERS), repository=repository,
    ), found  # fmt: skip


def _index(folder: Path) -> tuple[tuple[str, ...], int | None]:
    for name in checkpoints.INDEXES:
        path = folder / name
        if not path.is_file():
            continue
        try:
            found = json_text.read(regular_file.read(path, _INDEX_BYTES_MAX))
            named = {each for each in found["weight_map"].values() if isinstance(each, str)}
            total = found.get("metadata", {}).get("total_size")
        except (ValueError, OSError, LookupError, TypeError, AttributeError):
            return (), None
        return tuple(sorted(named))[:_FILES_MAX], total if is_size(total, BYTES_MAX) else None
    return (), None


def _damage(path: Path) -> str | None:
    size = checkpoints.file_bytes(path)
    try:
        with regular_file.opened(path) as file:
            head = file.read(len(_LFS))
            if head == _LFS:
                return f"{path.name} is Git LFS's pointer of {size} bytes, not the weights"
            if path.suffix != ".safetensors":
                return None if size else f"{path.name} is empty"
            length = int.from_bytes(head[:8], "little")
            if len(head) < 8 or not 0 < length <= min(_HEADER_BYTES_MAX, size):  # noqa: PLR2004
                return f"{path.name} ({size:,} bytes) does not begin as safetensors does"
            file.seek(8)
            header = json_text.read(file.read(length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
        if not is_size(whole, BYTES_MAX):
            return f"{path.name} names {shown(whole)} bytes as its own length"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{path.name} cannot be read: {shown(error)}"
    return f"{path.name} is {size:,} of {whole:,} bytes long" if size < whole else None
