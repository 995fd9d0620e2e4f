"""Writes docs/configuration.md from the models, so that it cannot say what the program does not do."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vllm_watch.config import Config
from vllm_watch.settings.errors import model_at
from vllm_watch.settings.hooks import HookSettings
from vllm_watch.settings.notifications import NotifierSettings
from vllm_watch.settings.target import TargetConfig

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

PAGE = Path(__file__).parent / "configuration.md"

EXAMPLE = """\
listen: 0.0.0.0:9470
state_dir: /var/lib/vllm-watch

scrape:
  interval_seconds: 5

slo:
  time_to_first_token_seconds: 2
  inter_token_latency_seconds: 0.1

targets:
  - name: chat-0
    group: chat
    url: http://10.0.0.7:8000
  - url: https://llm.example.org/big
    scrape:
      interval_seconds: 15

discovery:
  file_sd:
    - targets/*.json
"""

HEAD = f"""\
# Configuration

<!-- Made by docs/generate_configuration.py from the models in vllm_watch/settings/. Do not edit. -->

This page lists every key of the configuration file, with its default in brackets. The file is optional: `vllm-watch run` finds the vLLM servers of this
host. It is YAML, and is named by `--config FILE` or `VLLM_WATCH_CONFIG`:

```yaml
{EXAMPLE}```

`vllm-watch check-config FILE` explains a file, or lists all its errors; unknown and duplicate keys are errors. After a change, `kill -HUP`
the daemon or `POST /-/reload`: an invalid file is refused and the old one stays in force. For completion in an editor put
`# yaml-language-server: $schema=vllm-watch.schema.json` into the first line; `vllm-watch check-config --schema > vllm-watch.schema.json` writes the schema.

The command line overrides the environment, which overrides the file. Each key outside of lists has a variable: `VLLM_WATCH_` and its path,
with two underscores (`VLLM_WATCH_SCRAPE__INTERVAL_SECONDS=1`). `--target` and `VLLM_WATCH_TARGETS` (`[NAME=]URL`, separated by commas) add targets to
those of the file. Other `VLLM_WATCH_` variables are errors, except those of a Kubernetes Service named `vllm-watch`.

Names of keys end in the unit. Sizes are bytes, or text such as `16 MiB`. Relative paths start at the file's folder. The schema
has the full text of each key, and the reasons of thresholds.
"""

TITLES = {
    "": "Top level",
    "targets": "targets",
    "discovery.kubernetes": "discovery.kubernetes",
}
MORE = {
    "scrape.tls_config": """\
These are the keys of Prometheus' `tls_config` that name files. Renewed files are used within 5 seconds ([engines over TLS](security.md#engines-over-tls)). A failed handshake is outcome `tls`, with the reason.
""",
    "discovery": """\
A server that is found twice is watched once: `targets` take precedence over files, and files over pods. At most 10,000 targets are watched.

**Files** are Prometheus' `file_sd`; of the labels `name`, `group`, `namespace`, `pod`, `node`, `__scheme__` and `__metrics_path__` are used.
While a file is invalid, its last valid list holds; a removed file removes its targets.

**Kubernetes**: a deleted pod's target is removed within seconds, without an incident. While the API server is unreachable, the last known pods stay
targets. Annotations and rights: [kubernetes.md](kubernetes.md).
""",
}
LONG = 30  # words
SENTENCE = re.compile(r"(?<=[.)`])(?<!e\.g\.) (?=[A-Z`])")
COMMON: dict[str, tuple[str, type[BaseModel]]] = {
    "hooks": ("Every hook has", HookSettings),
    "notifications": ("`webhook` and `apprise` have", NotifierSettings),
}
"""Keys that several sections below one share stand once, before them."""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_sections(Config, "")])


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    yield f"## {TITLES.get(path, path)}\n"
    if path:
        yield f"{' '.join(str(model.__doc__).split())}\n"
    common, shared = COMMON.get(path.partition(".")[0], ("", BaseModel))
    rows = [row for row in _rows(model, path) if row not in _rows(shared, path)]
    if rows:
        yield "\n".join(rows) + "\n"
    if path in MORE:
        yield MORE[path]
    if path in COMMON:
        yield "\n".join([f"{common}:\n", *_rows(shared, path), ""])
    for name in model.model_fields:
        inner = _below(model, name)
        if inner is not None:
            yield from _sections(inner, f"{path}.{name}".removeprefix("."))


def _rows(model: type[BaseModel], path: str) -> list[str]:
    fields = {name: each for name, each in model.model_fields.items() if not _below(model, name)}
    if path.startswith("detectors."):  # thresholds: the schema and the code have their reasons
        numbers = ", ".join(f"`{name}={field.default:.12g}`" for name, field in fields.items())
        return [f"{numbers}."] if numbers else []
    same = list(_same(model, fields))
    return [*(_row(model, name, field) for name, field in fields.items()), *same]


def _same(model: type[BaseModel], fields: dict[str, FieldInfo]) -> Iterator[str]:
    """Yield one row for the keys of a target that override the section of their name, and remove them from `fields`."""
    found = [name for name in fields if told(model)[name][""].startswith(f"Overrides of `{name}`")]
    if found:
        yield f"- {', '.join(f'`{name}`' for name in found)}: overrides of these sections for this target."
    for name in found:
        del fields[name]


def _below(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    # A target's own scrape, canary and slo are the sections of that name: one row says so.
    return None if model is TargetConfig else model_at(model, (name,))


@cache
def told(model: type[BaseModel]) -> dict[str, dict[str, str]]:
    """By key: what the text below it in the code says under "" (what it does), "Default" and "Why"."""
    found = told(model.__base__) if model.__base__ not in (None, BaseModel) else {}
    (definition,) = ast.parse(inspect.getsource(model)).body
    for pair in pairwise(getattr(definition, "body", [])):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(
                value=ast.Constant(value=str(said))
            ):
                parts = re.split(r"^\s*(Default|Why): ", said, flags=re.MULTILINE)
                texts = [" ".join(part.split()) for part in parts]
                found = found | {key: dict(zip(["", *texts[1::2]], texts[::2], strict=True))}
    return found


def _row(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    said = told(model).get(name, {})
    what = said.get("", "")
    if len(what.split()) > LONG:
        what = SENTENCE.split(what)[0]  # the schema has the rest
    default, values = said.get("Default") or _default(field), _values(field)
    default = f"{default}; of {values}" if values else default
    shown = f"- `{name}`" if default == "none" else f"- `{name}` ({default})"
    return f"{shown}: {what}" if what else shown


def _values(field: FieldInfo) -> str:
    if get_origin(field.annotation) is not Literal:
        return ""
    return ", ".join(f"`{value}`" for value in get_args(field.annotation))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "**required**"
    if field.default is None or field.default in ("", (), {}):
        return "none"
    if isinstance(field.default, BaseModel):
        return "as there"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, tuple):
        return f"`[{', '.join(map(str, field.default))}]`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: page()}))
