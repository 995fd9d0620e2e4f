"""Writes docs/configuration.md from the models, so that it cannot say what the program does not do.

python docs/generate_configuration.py            write it
python docs/generate_configuration.py --check    exit 1 when it is stale
"""

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

No file is needed: `vllm-watch run` finds the vLLM servers of this host and watches them with the defaults below.
A file is YAML, named by `--config FILE` or `VLLM_WATCH_CONFIG`:

```yaml
{EXAMPLE}```

`vllm-watch check-config FILE` says what a file means, or all that is wrong with it. Unknown keys, duplicate keys and YAML
aliases are refused. After a change, `kill -HUP` the daemon or `POST /-/reload`: a file that is not usable is refused, and the
old one stays in force.

An editor completes and checks keys with `# yaml-language-server: $schema=vllm-watch.schema.json` as the first line, beside the
file that `vllm-watch check-config --schema > vllm-watch.schema.json` writes.

A value comes from, the last one first: the command line (`--listen`, `--state-dir`, `--procfs`, `--target [NAME=]URL`, added to
the file's), the environment, the file, the default. Environment: every key that is not in a list, as `VLLM_WATCH_` and its path
with two underscores (`VLLM_WATCH_SCRAPE__INTERVAL_SECONDS=1`); `VLLM_WATCH_TARGETS` is a list of `[NAME=]URL` with commas, added
to the file's. An unknown `VLLM_WATCH_` variable is refused, except those that Kubernetes makes for a Service named `vllm-watch`.

Times are numbers in the unit that ends the key's name. Sizes are bytes, or text with a unit: `16 MiB`. A relative path starts at
the folder of the file, on the command line at the current one. In brackets: the default.
"""

TITLES = {
    "": "Top level",
    "targets": "targets",
    "discovery.kubernetes": "discovery.kubernetes",
}
MORE = {
    "targets": """\
A URL with credentials is refused. Names and URLs are unique.
""",
    "scrape.tls_config": """\
These are the keys of Prometheus' `tls_config` that name files. They hold for every target with an `https` URL; a target's own
`tls_config` replaces them as a whole. Files are checked at the start and at a reload, and read again every 5 seconds: a renewed
certificate needs no restart. While certificate and key do not match, the old ones serve, and the log says so.

A handshake that fails is outcome `tls`, with the reason, or `connect_timeout` where the server closes without one.
""",
    "discovery": """\
A server that is found twice is watched once: `targets` wins over what is found, files over pods. At most
10,000 targets are watched; the log says how many were left out.

**Files** are Prometheus' `file_sd`, JSON or YAML, written whole and then renamed into place. Labels `name` (where the entry has
one target), `group`, `namespace`, `pod`, `node`, `__scheme__` and `__metrics_path__` are used. A bad file keeps its last good
list, with a line in the log; a removed file removes its targets.

**Kubernetes**: pods are listed once and then followed; a deleted pod is no target within seconds, and no incident. While the API
server is away, the last known pods stay targets. Annotations, names and rights: [kubernetes.md](kubernetes.md).
""",
}
LONG = 30  # words
SENTENCE = re.compile(r"(?<=[.)`])(?<!e\.g\.) (?=[A-Z`])")
COMMON: dict[str, tuple[str, type[BaseModel]]] = {
    "hooks": ("Every hook has", HookSettings),
    "notifications": ("`webhook` and `apprise` have", NotifierSettings),
}
"""Keys that several sections below one share stand once, before them."""


def main() -> int:
    """Write the page, or say that it is stale."""
    text = page()
    if "--check" not in sys.argv:
        PAGE.write_text(text)
        return 0
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    sys.stderr.write(f"{PAGE} is stale: run python docs/generate_configuration.py\n")
    return 1


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
    fields = model.model_fields.items()
    return [_row(model, name, field, path) for name, field in fields if not _below(model, name)]


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


def _row(model: type[BaseModel], name: str, field: FieldInfo, path: str) -> str:
    said = told(model).get(name, {})
    what = said.get("", "")
    if path.startswith("detectors.") or len(what.split()) > LONG:
        what = SENTENCE.split(what)[0]  # the code has the rest
    default, values = said.get("Default") or _default(field), _values(field)
    shown = f"- `{name}` ({f'{default}; of {values}' if values else default})"
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
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


if __name__ == "__main__":
    sys.exit(main())
