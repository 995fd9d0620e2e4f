"""Override the configuration file by the environment and the command line.

An error names the variable or argument that set the value.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel

from vllm_watch.errors import ConfigError
from vllm_watch.settings.errors import KeyPath, dotted, instead_of, model_at
from vllm_watch.settings.target import named_url

PREFIX = "VLLM_WATCH_"
CONFIG_VARIABLE = "VLLM_WATCH_CONFIG"
# Variables set for a restart hook's command, which may itself run vllm-watch.
HOOK_VARIABLES = frozenset(
    f"{PREFIX}{word}"
    for word in (
        "ATTEMPT_ID", "TARGET", "TARGET_URL", "GROUP", "TRIGGER", "REASON", "ENGINE", "INCIDENT_ID", "KIND", "CAUSE",
        "EVIDENCE_PATH", "NAMESPACE", "POD", "NODE", "PROCESS_START_TIME",
    )
)  # fmt: skip
# Variables of the commands that query a daemon; the daemon ignores them.
CLIENT_VARIABLES = frozenset(
    f"{PREFIX}{word}" for word in ("URL", "TOKEN_FILE", "CA_FILE", "CERT_FILE", "CREDENTIALS_FILE")
)
# Set in hooks. Elsewhere, VLLM_WATCH_TARGET is a typo of VLLM_WATCH_TARGETS.
_IN_A_HOOK = f"{PREFIX}ATTEMPT_ID"
# Kubernetes sets these in every pod if a Service is named vllm-watch.
_SERVICE_LINK = re.compile(
    r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_.*)?)"
)


class Overrides:
    """The file's mapping with all overrides. `label` returns the origin of a value."""

    def __init__(self, file: str, data: dict[str, Any]) -> None:
        self.data = data
        self.errors: list[ConfigError] = []
        self._file = file
        self._origins: dict[KeyPath, str] = {}

    def label(self, path: KeyPath) -> str:
        for length in range(len(path), 0, -1):
            origin = self._origins.get(path[:length])
            if origin is not None:
                rest = dotted(path[length:])
                return f"{origin}: {rest}" if rest and path[0] != "targets" else origin
        return f"{self._file}: {dotted(path)}" if path else self._file

    def environment(self, model: type[BaseModel], environ: Mapping[str, str]) -> None:
        """Override the file with every `VLLM_WATCH_SECTION__KEY`."""
        known = {_variable(path): path for path in _scalar_paths(model)}
        others = (
            {CONFIG_VARIABLE}
            | CLIENT_VARIABLES
            | (HOOK_VARIABLES if _IN_A_HOOK in environ else set())
        )
        for variable in sorted(environ):
            if not variable.startswith(PREFIX) or variable in others:
                continue
            if variable == f"{PREFIX}TARGETS":
                self._add_targets(variable, environ[variable].replace(",", " ").split())
            elif variable in known:
                self._set(known[variable], environ[variable], variable)
            elif not _SERVICE_LINK.fullmatch(variable.removeprefix(PREFIX)):
                self._unknown(variable, [*known, f"{PREFIX}TARGETS", CONFIG_VARIABLE])

    def arguments(
        self,
        targets: Sequence[str],
        targets_from: str,
        tls: Mapping[str, str],
        **given: str | Path | None,
    ) -> None:
        """Override the file with arguments. `--target` adds to the file's targets."""
        self._add_targets(targets_from, targets)
        for key, value in given.items():
            if value is not None:
                text = str(value.absolute()) if isinstance(value, Path) else value
                self._set((key,), text, _option(key))
        for key, value in tls.items():
            self._set(("scrape", "tls_config", key), value, _option(key))

    def _set(self, path: KeyPath, value: str, origin: str) -> None:
        section = self.data
        for key in path[:-1]:
            inner = section.get(str(key))
            if inner is None:
                inner = section[str(key)] = {}
            if not isinstance(inner, dict):
                return  # reported as an error of the file
            section = inner
        section[str(path[-1])] = value
        self._origins[path] = origin

    def _add_targets(self, origin: str, texts: Sequence[str]) -> None:
        listed = self.data.get("targets")
        if not texts or not isinstance(listed, list | None):
            return
        listed = list(listed or ())
        for text in texts:
            target = named_url(text)
            self._origins["targets", len(listed)] = f"{origin} {target.get('name', '')}".strip()
            listed.append(target)
        self.data["targets"] = listed

    def _unknown(self, variable: str, known: Sequence[str]) -> None:
        path = variable.removeprefix(PREFIX).lower().split("__")
        instead = instead_of(tuple(path))
        if instead is not None:
            self.errors.append(ConfigError(f"{variable}: was removed", instead))
            return
        close = get_close_matches(variable, known, n=1)
        meant = f"did you mean {close[0]}?" if close else "unset it"
        remedy = (
            f"{meant} Keys are joined with two underscores: VLLM_WATCH_SCRAPE__INTERVAL_SECONDS"
        )
        self.errors.append(ConfigError(f"{variable}: is not a vllm-watch variable", remedy))


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _variable(path: KeyPath) -> str:
    return PREFIX + "__".join(str(key) for key in path).upper()


def _scalar_paths(model: type[BaseModel], above: KeyPath = ()) -> list[KeyPath]:
    paths: list[KeyPath] = []
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is tuple:
            continue  # `targets` is the only list with a variable
        inner = model_at(model, (name,))
        paths += [(*above, name)] if inner is None else _scalar_paths(inner, (*above, name))
    return paths
