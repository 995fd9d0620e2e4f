"""The settings of targets and of their discovery."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from vllm_watch.samples.target import PORT_OF_SCHEME, WATCHER, Target
from vllm_watch.settings.base import (
    FilePath,
    FilePattern,
    Port,
    Problem,
    Seconds,
    Sections,
    Settings,
    matching,
    problem,
    problems,
    quoted,
)
from vllm_watch.settings.detectors import DetectorsSettings
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.stages import CanarySettings, ScrapeSettings, SloSettings
from vllm_watch.settings.tls import TlsConfig

TARGETS_MAX = 10_000  # limits memory; one process keeps up with a few hundred
_NAME_CHARACTERS_MAX = 63  # a DNS label
_HOST_PORT = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}(/[^?#@\s]*)?")  # no scheme


def _base_url(value: str) -> str:
    text = value.strip()
    if _HOST_PORT.fullmatch(text):
        text = f"http://{text}"
    parts, port = _split(text)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/metrics").rstrip("/")
    # NVIDIA NIM has its metrics at /v1/metrics: accept this path.
    if path.endswith("/v1") and not parts.path.rstrip("/").endswith("/v1/metrics"):
        remedy = "leave /v1 out: /metrics and /health are at the server's root"
        raise problem(f"{quoted(text)} is the address of the OpenAI API", remedy)
    return f"{parts.scheme}://{shown}{'' if port is None else f':{port}'}{path}"


def _split(text: str) -> tuple[SplitResult, int | None]:
    if not re.match(r"https?://", text):
        remedy = "write http://HOST:PORT (or https://)"
        raise problem(f"{quoted(text)} does not begin with http:// or https://", remedy)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # hide the error's text: it may quote a part of a password as the port
        parts, port = SplitResult("", "", "", "", ""), None
    if "@" in text:  # a password may contain a slash
        remedy = "take them out of the URL; put an API key in a file and set api_key_file"
        raise problem(f"{quoted(text)} carries credentials", remedy)
    if not parts.hostname or port == 0 or re.search(r"[\s\\]", text):
        raise problem(f"{quoted(text)} is not the address of a server", "write http://HOST:PORT")
    if parts.query or parts.fragment:
        shown = quoted(re.sub("#.*", "#…", text))  # the fragment may be a key
        raise problem(f"{shown} carries a query or a fragment", "give the server's base URL")
    return parts, port


def _target_name(value: str) -> str:
    name = slug(value)
    if value and not name:
        remedy = "use letters and digits; other characters become '-'"
        raise problem(f"{quoted(value)} is not a name", remedy)
    if value == WATCHER:
        raise problem(f"{quoted(value)} is the watcher's own name", "choose another name")
    return name


BaseUrl = Annotated[str, AfterValidator(_base_url)]
TargetName = Annotated[str, AfterValidator(_target_name)]


def named_url(text: str) -> dict[str, str]:
    """Parse `[NAME=]URL`, as on the command line."""
    name, given, url = text.partition("=")
    if not given or re.match(r"https?:", text) or "?" in name:
        return {"url": text}
    return {"name": name, "url": url}


class TargetConfig(Settings):
    """One vLLM server; `[NAME=]URL` is enough."""

    name: TargetName = ""
    """Unique name in labels, paths and logs. `Org/Model 1` becomes `org-model-1`.
    Default: host and port of its URL"""

    url: BaseUrl
    """The server's base URL, without credentials; `/metrics` is appended to its path."""

    group: str = Field("", max_length=253)
    """Group of interchangeable servers. They share restart budgets and baselines.
    Default: the target's name"""

    namespace: str = Field("", max_length=253)
    """Kubernetes namespace, for labels only."""

    pod: str = Field("", max_length=253)
    """Kubernetes pod, for labels only."""

    node: str = Field("", max_length=253)
    """Host or Kubernetes node, for labels only."""

    peers: tuple[TargetName, ...] = ()
    """Targets with which this one exchanges KV cache (prefill and decode). Set the key on only one
    of the two sides. Discovery finds peers by labels on Kubernetes, and by `--kv-transfer-config`
    on this host.
    Why: If a server waits for KV, the incident is opened for the stalled peer."""

    gang: str = Field("", max_length=253)
    """Common name of data-parallel ranks that step together but have separate addresses.
    Why: A stalled rank stops the others, so a restart must cover all of them."""

    scrape: ScrapeSettings = ScrapeSettings()
    """Overrides of `scrape` for this target."""

    slo: SloSettings = SloSettings()
    """Overrides of `slo` for this target."""

    restart: RestartSettings = RestartSettings()
    """Overrides of `restart` for this target."""

    detectors: DetectorsSettings = DetectorsSettings()
    """Overrides of `detectors` for this target. They precede the group's overrides."""

    canary: CanarySettings = CanarySettings()
    """Overrides of `canary` for this target."""

    engine_log: FilePath | None = None
    """File with this server's output, which explains failures in its incidents."""

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: Any) -> Any:
        return named_url(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _tls_needs_https(self) -> "TargetConfig":
        if self.scrape.tls_config != TlsConfig() and self.url.startswith("http:"):
            remedy = "write https:// in its url, or leave tls_config out"
            raise problem("the URL is http: it has no effect", remedy, "scrape", "tls_config")
        return self

    def identity(self) -> Target:
        return Target(
            name=self.name,
            url=self.url,
            group=self.group or self.name,
            namespace=self.namespace,
            pod=self.pod,
            node=self.node,
            gang=self.gang,
        )


NAMESPACES_MAX = 50
"""At most this many namespaces are allowed, because each needs an open connection. Use `*` for more."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}"
_REQUIREMENT = re.compile(
    rf"!?{_KEY}|{_KEY}\s*(==?|!=)\s*({_LABEL})?|{_KEY}\s+(in|notin)\s+\(\s*{_LABEL}(\s*,\s*{_LABEL})*\s*\)"
)
_OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")


Namespace = Annotated[str, matching(
    r"\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a namespace", "write the name of a namespace, or '*' alone for all",
)]  # fmt: skip


class KubernetesDiscovery(Settings):
    """Pods that match a label selector, listed with vllm-watch's service account."""

    selector: str = Field(min_length=1, max_length=1000)
    """Label selector in the syntax of `kubectl get pods -l`: `app=vllm`, `app in (a,b),!canary`."""

    namespaces: tuple[Namespace, ...] = Field((), max_length=NAMESPACES_MAX)
    """Namespaces of the pods; `*` alone: the whole cluster (needs a ClusterRole).
    Default: vllm-watch's namespace"""

    node_name: Annotated[str, Field(max_length=253), matching(
        r"(\$[A-Za-z_][A-Za-z0-9_]*|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", "the name of a node",
        "write the node's name, or $NAME of a variable that holds it",
    )] = ""  # fmt: skip
    """Only pods of this node. `$NAME` is read from the environment; a DaemonSet sets it from
    `spec.nodeName`.
    Default: all nodes"""

    port: Port = 8000
    """Port of a pod without a port annotation.
    Why: `vllm serve` uses it."""

    scheme: Literal["http", "https"] = "http"
    """Scheme of a pod without a scheme annotation.
    Why: vLLM has no TLS by default."""

    @field_validator("selector")
    @classmethod
    def _selects(cls, value: str) -> str:
        for part in _OUTSIDE_BRACKETS.split(value):
            if not _REQUIREMENT.fullmatch(part.strip()):
                remedy = "use the syntax of kubectl get pods -l, such as app=vllm"
                raise problem(f"{quoted(part.strip())} is not part of a label selector", remedy)
        return value

    @field_validator("namespaces")
    @classmethod
    def _all_or_some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in value and len(value) > 1:
            raise problem("'*' is combined with namespaces", "write it alone, or leave it out")
        return tuple(dict.fromkeys(value))


def qualified(entries: Iterable[KubernetesDiscovery]) -> bool:
    """Return True if pods of several namespaces may share a name."""
    namespaces = {name for entry in entries for name in entry.namespaces or ("",)}
    return len(namespaces) > 1 or "*" in namespaces


def _host_or_network(value: str) -> str:
    if re.fullmatch(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", value):
        return value
    try:
        ip_network(value, strict=False)
    except ValueError:
        remedy = "write a host name, *.DOMAIN, an address, or a network such as 10.0.0.0/8"
        raise problem(f"{quoted(value)} is neither a host nor a network", remedy) from None
    return value


class DiscoverySettings(Sections):
    """Discovery of targets without a reload."""

    refresh_seconds: Seconds = Field(30.0, ge=1, le=3600)
    """Interval at which the `file_sd` files are read and this host is searched.
    Why: A new server is found while it still loads its weights."""

    host: bool = False
    """Find the vLLM servers of this host. They stay targets after they end.
    Default: no; yes for `run` without any target
    Why: Users with listed targets do not expect others."""

    file_sd: tuple[FilePattern, ...] = Field((), max_length=100)
    """Prometheus `file_sd` files, JSON or YAML; `*` is allowed. Paths are relative to the folder of this file."""

    kubernetes: tuple[KubernetesDiscovery, ...] = Field((), max_length=20)
    """Pods of a cluster, see [kubernetes.md](kubernetes.md). Changes are seen at once, without
    waiting for `refresh_seconds`."""

    allow: tuple[Annotated[str, AfterValidator(_host_or_network)], ...] = Field((), max_length=1000)
    """Allowed hosts: names (`*.example.org` includes all names below it), addresses, networks
    (`10.0.0.0/8`). Other hosts are never contacted. Targets from files and pods get the key of
    `scrape.api_key_file` only if they are listed here.
    Default: all are contacted; targets from files and pods get no key
    Why: Otherwise, anyone with write access to the files or the right to create pods could obtain
    our key."""

    @property
    def any(self) -> bool:
        return bool(self.host or self.file_sd or self.kubernetes)


def slug(text: str) -> str:
    """Return the text as a name. A long text is cut and ends in a digest."""
    short = re.sub(r"-{2,}", "-", re.sub(r"[^a-z0-9._-]", "-", text.lower())).strip("-._")
    if len(short) <= _NAME_CHARACTERS_MAX:
        return short
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{short[: _NAME_CHARACTERS_MAX - 9]}-{digest}"


def named(targets: Iterable[TargetConfig], taken: Iterable[str] = ()) -> tuple[TargetConfig, ...]:
    """Return the targets with groups and unique names. If a name is taken, its target gets another one."""
    used, own = set(taken), list[tuple[TargetConfig, str]]()
    for target in targets:
        own.append((target, "" if target.name in used else target.name))
        used.add(target.name)
    return tuple(_with_name(target, name, used) for target, name in own)


def _with_name(target: TargetConfig, name: str, used: set[str]) -> TargetConfig:
    if not name:
        parts = urlsplit(target.url)
        port = parts.port or PORT_OF_SCHEME[parts.scheme]
        name = stem = slug(f"{parts.hostname}-{port}{parts.path}")
        number = 2
        while name in used:
            name = f"{stem[: _NAME_CHARACTERS_MAX - 6]}-{number}"
            number += 1
        used.add(name)
    return target.model_copy(update={"name": name, "group": target.group or name})


def refuse_duplicates(targets: Sequence[TargetConfig]) -> None:
    """Raise a problem for every duplicate name and URL."""
    found: list[Problem] = []
    seen: dict[tuple[str, str], int] = {}
    for number, target in enumerate(targets):
        for key, value in (("name", target.name), ("url", target.url)):
            first = seen.setdefault((key, value), number) if value else number
            if first != number:
                cause = f"{quoted(value)} is also the {key} of targets[{first}]"
                found.append(Problem((number, key), cause, f"give each target its own {key}"))
    if found:
        raise problems(found)
