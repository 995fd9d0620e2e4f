"""Writes docs/configuration.md from the models, so that it cannot say what the program does not do.

python docs/generate_configuration.py            write it
python docs/generate_configuration.py --check    exit 1 when it is stale
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from vllm_watch.config import Config
from vllm_watch.settings.errors import model_at
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
  dns:
    - host: vllm.prod.svc.cluster.local
      port: 8000
"""

HEAD = f"""\
# Configuration

<!-- Made by docs/generate_configuration.py from the models in vllm_watch/settings/. Do not edit. -->

No file is needed: `vllm-watch run --target http://127.0.0.1:8000` watches with the defaults below.
A file is YAML, named by `--config FILE` or `VLLM_WATCH_CONFIG`:

```yaml
{EXAMPLE}```

`vllm-watch check-config FILE` says what a file means, or all that is wrong with it at once. An
unknown key, a key that stands twice and a value that makes no sense are refused, never guessed.
YAML aliases are not read, and a file may have 2 MiB. After a change, `kill -HUP` the daemon or
`POST /-/reload`: a file that is not usable is refused with the same words, and the old one goes on.

## Where a value comes from

Later stands over earlier: the default, the file, the environment, the command line.

* **Environment**: every key below that is not in a list, as `VLLM_WATCH_` and its path with two
  underscores: `VLLM_WATCH_LISTEN=0.0.0.0:9470`, `VLLM_WATCH_SCRAPE__INTERVAL_SECONDS=1`.
  `VLLM_WATCH_TARGETS` is a list of `[NAME=]URL` with commas, added to the file's. A variable that
  begins with `VLLM_WATCH_` and is none of these is refused, but for those that Kubernetes makes for
  a Service named `vllm-watch`.
* **Command line**: `--listen`, `--state-dir`, `--procfs`, and `--target [NAME=]URL`, as often as you
  like, added to the file's.

Times are plain numbers in the unit that ends the key's name. Sizes are bytes, or text with a unit:
`16 MiB`. A relative path starts at the folder of the file, on the command line at the current one.
"""

TITLES = {
    "": "Top level",
    "targets": "targets",
    "discovery.dns": "discovery.dns",
    "discovery.kubernetes": "discovery.kubernetes",
}
MORE = {
    "targets": """\
No secret belongs into a URL: a URL with credentials is refused. Names and URLs are unique.
""",
    "scrape.tls_config": """\
The keys are those of Prometheus' `tls_config`, as far as files go: `ca`, `cert`, `key`, `*_ref` and versions are not
taken. It holds for every target with an `https` URL, also for those that are found; a target that is written out may
have its own, which stands in its place as a whole (`tls_config: {}`: none of it).

Files are read as the daemon starts or reloads, and one that cannot be used is refused. They are looked at every 5 seconds
while connections are made: a renewed certificate needs no restart. While certificate and key do not fit each other, the
old ones serve, and the log says so.

A handshake that fails is outcome `tls`, with the reason. A server that closes during the handshake without a reason is
`connect_timeout`, as a dead one behind a balancer is; with TLS 1.2 it may also be one that asks for a certificate.
""",
    "discovery": """\
A server that is found twice is watched once; what is written out under `targets` wins over what is
found, files win over names, and both over pods. At most 10,000 targets are taken and the rest is said.

**Files** are Prometheus' `file_sd`, JSON or YAML: a list of `{"targets": ["HOST:PORT"], "labels": {…}}`,
written whole and then renamed into place. Of the labels, `name` (where the entry has one target),
`group`, `namespace`, `pod` and `node` become the target's, `__scheme__` and `__metrics_path__` its
URL; others are not used. A file that is bad or half written keeps its last good list, and that is
said once in the log; an entry that is no target is left out alone; a file that is gone takes its
targets along.

**DNS** is asked through the system's resolver, for A and AAAA (SRV records are not read); where a
name has IPv4 addresses, its IPv6 ones are not taken. Targets are spoken to by http at their
addresses. An address goes when two answers in a row lack it. When the resolver fails, the last
addresses are kept for ten minutes. Behind a Kubernetes Service, use a headless one with
`publishNotReadyAddresses: true`: otherwise an engine leaves DNS when it stops being ready, which is
just when it should be watched.

**Kubernetes** is asked as the service account of vllm-watch's own pod: the pods are listed once and then
followed, so one that is deleted is no target within a second or two, and its end is no incident. While the
API server is away, the pods that it told of last are watched on, and the log says so. What annotations
may say, how pods are named and grouped, and the rights it takes: [kubernetes.md](kubernetes.md).
""",
}


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
        yield f"{model.__doc__}\n"
    leaves = {name: field for name, field in model.model_fields.items() if not _below(model, name)}
    if leaves:
        yield "| key | type | default | what it does |\n|---|---|---|---|"
        yield "\n".join(_row(model, name, field) for name, field in leaves.items()) + "\n"
    if path in MORE:
        yield MORE[path]
    for name in model.model_fields:
        inner = _below(model, name)
        if inner is not None:
            yield from _sections(inner, f"{path}.{name}".removeprefix("."))


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
    what, why = said.get("", ""), said.get("Why")
    cells = (
        f"`{name}`",
        _type(name, field),
        said.get("Default") or _default(field),
        f"{what} *{why}*" if why else what,
    )
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _type(name: str, field: FieldInfo) -> str:
    annotation: Any = field.annotation
    if NoneType in get_args(annotation):
        annotation = next(kind for kind in get_args(annotation) if kind is not NoneType)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list"
    if get_origin(annotation) is dict:
        return "map"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "as the section"
    for suffix, unit in (("_seconds", "seconds"), ("minutes", "minutes"), ("bytes_max", "bytes")):
        if name.endswith(suffix):
            return unit
    words: dict[Any, str] = {
        str: "text", int: "number", float: "number", bool: "true or false", Path: "path",
        datetime: "date and time",
    }  # fmt: skip
    while get_origin(annotation):
        annotation = get_args(annotation)[0]
    return words[annotation]


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
