"""Read targets from Prometheus file_sd files. If a file is invalid or half-written, its last valid
targets are kept. Source: Prometheus' <file_sd_config>."""

import glob
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vllm_watch.errors import ConfigError
from vllm_watch.settings import yaml_text
from vllm_watch.settings.base import quoted
from vllm_watch.settings.errors import dotted, explained
from vllm_watch.settings.target import TARGETS_MAX, TargetConfig, slug
from vllm_watch.support import json_text, regular_file
from vllm_watch.support.redaction import HIDDEN

_FILE_BYTES_MAX = 4 << 20  # 10,000 targets with all their labels
_FILES_MAX = 1000
_IDENTITY_LABELS = ("group", "namespace", "pod", "node")


@dataclass(slots=True)
class _File:
    stamp: tuple[int, int, int] | None = None  # modification time, size, inode
    targets: tuple[TargetConfig, ...] = ()
    problem: str | None = None


@dataclass(slots=True)
class FileTargets:
    """Targets of the files. Only changed files are parsed."""

    patterns: tuple[str, ...]
    _files: dict[str, _File] = field(default_factory=dict)

    def read(self) -> tuple[list[TargetConfig], dict[str, str]]:
        """Return targets in order, and problems by file. The call may block."""
        paths = sorted({path for pattern in self.patterns for path in glob.glob(pattern)})
        problems = {pattern: "no such file" for pattern in self.patterns if not glob.glob(pattern)}
        if len(paths) > _FILES_MAX:
            problems["file_sd"] = (
                f"{len(paths)} files match; those after the first {_FILES_MAX} are not read"
            )
        self._files = {path: self._files.get(path, _File()) for path in paths[:_FILES_MAX]}
        for path, file in self._files.items():
            _refresh(path, file)
            if file.problem:
                problems[path] = file.problem
        return [target for file in self._files.values() for target in file.targets], problems


def _refresh(path: str, file: _File) -> None:
    try:
        stamp = regular_file.stamp(Path(path).stat())
        if stamp == file.stamp:
            return
        groups = _groups(path)
    except (OSError, ConfigError) as error:
        cause = error.cause if isinstance(error, ConfigError) else (error.strerror or str(error))
        kept = f"; its last good list ({len(file.targets)}) is kept" if file.targets else ""
        file.problem = f"{cause.removeprefix(f'{path}: ')}{kept}"
        file.stamp = None  # the file may be completed without a new modification time
        return
    refused: list[str] = []
    file.targets = tuple(_targets(groups, refused))
    file.stamp = stamp
    file.problem = f"{len(refused)} left out, the first: {refused[0]}" if refused else None
    if sum(len(addresses) for addresses, _ in groups) > TARGETS_MAX:
        file.problem = f"only its first {TARGETS_MAX} targets are used"


def _groups(path: str) -> list[tuple[list[Any], dict[str, str]]]:
    text = yaml_text.text_of(Path(path), _FILE_BYTES_MAX)
    if not text.strip():
        raise ConfigError(f"{path}: is empty", "write [] for no targets")
    if path.endswith(".json"):
        try:
            data = json_text.read(text)
        except ValueError as error:
            raise ConfigError(
                f"{path}: is not JSON: {error}", "write a new file, then rename it"
            ) from None
    else:
        data, _ = yaml_text.parse(text, path)
    groups = data if isinstance(data, list) else [data]
    return [_group(path, number, group) for number, group in enumerate(groups)]


def _group(path: str, number: int, group: Any) -> tuple[list[Any], dict[str, str]]:
    targets = group.get("targets") if isinstance(group, dict) else None
    labels = group.get("labels") or {} if isinstance(group, dict) else {}
    if not isinstance(targets, list) or not isinstance(labels, dict):
        cause = f'{path}: entry {number} is not {{"targets": ["HOST:PORT"], "labels": {{…}}}}'
        raise ConfigError(cause, "write it as Prometheus reads it")
    return targets, {str(key): str(value) for key, value in labels.items()}


def _targets(
    groups: list[tuple[list[Any], dict[str, str]]], refused: list[str]
) -> list[TargetConfig]:
    found: list[TargetConfig] = []
    for addresses, labels in groups:
        for address in addresses:
            if len(found) == TARGETS_MAX:
                return found
            try:
                found.append(_target(address, labels, alone=len(addresses) == 1))
            except ValidationError as error:
                first = explained(error, TargetConfig, dotted)[0]
                refused.append(f"{_shown(address)}: {first.cause}")
            except ConfigError as error:
                refused.append(error.cause)
    return found


def _shown(address: Any) -> str:
    if isinstance(address, str) and "@" in address:
        address = f"{HIDDEN}@{address.rpartition('@')[2]}"
    return quoted(address)


def _target(address: Any, labels: dict[str, str], *, alone: bool) -> TargetConfig:
    if not isinstance(address, str):  # YAML's infinity would become the host "inf"
        raise ConfigError(f"{_shown(address)} is not HOST:PORT", "put it in quotes")
    path = labels.get("__metrics_path__", "/metrics")
    if not path.endswith("/metrics"):
        cause = f"{_shown(address)}: __metrics_path__ {quoted(path)} does not end in /metrics"
        raise ConfigError(cause, "vLLM serves /metrics, behind a prefix if need be")
    url = f"{labels.get('__scheme__', 'http')}://{address}{path}"
    identity = {key: labels[key] for key in _IDENTITY_LABELS if key in labels}
    # Several servers cannot have one name.
    name = slug(labels.get("name", "")) if alone else ""
    return TargetConfig(url=url, name=name, **identity)
