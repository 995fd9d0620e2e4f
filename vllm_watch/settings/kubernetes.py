"""The settings of discovery in Kubernetes."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from vllm_watch.settings.base import Port, Settings, problem, quoted

NAMESPACES_MAX = 50
"""At most this many namespaces are allowed, because each needs an open connection. Use `*` for more."""

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}"
_REQUIREMENT = re.compile(
    rf"!?{_KEY}|{_KEY}\s*(==?|!=)\s*({_LABEL})?|{_KEY}\s+(in|notin)\s+\(\s*{_LABEL}(\s*,\s*{_LABEL})*\s*\)"
)
_OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")


def _namespace(value: str) -> str:
    if value != "*" and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", value):
        remedy = "write the name of a namespace, or '*' alone for all"
        raise problem(f"{quoted(value)} is not a namespace", remedy)
    return value


class KubernetesDiscovery(Settings):
    """Pods that match a label selector, listed with vllm-watch's service account."""

    selector: str = Field(min_length=1, max_length=1000)
    """Label selector in the syntax of `kubectl get pods -l`: `app=vllm`, `app in (a,b),!canary`."""

    namespaces: tuple[Annotated[str, AfterValidator(_namespace)], ...] = Field(
        (), max_length=NAMESPACES_MAX
    )
    """Namespaces of the pods; `*` alone: the whole cluster (needs a ClusterRole).
    Default: vllm-watch's namespace"""

    node_name: str = Field("", max_length=253)
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

    @field_validator("node_name")
    @classmethod
    def _one_node(cls, value: str) -> str:
        if value and not re.fullmatch(
            r"\$[A-Za-z_][A-Za-z0-9_]*|[a-z0-9]([a-z0-9.-]*[a-z0-9])?", value
        ):
            remedy = "write the node's name, or $NAME of a variable that holds it"
            raise problem(f"{quoted(value)} is not the name of a node", remedy)
        return value


def qualified(entries: Iterable[KubernetesDiscovery]) -> bool:
    """Return True if pods of several namespaces may share a name."""
    namespaces = {name for entry in entries for name in entry.namespaces or ("",)}
    return len(namespaces) > 1 or "*" in namespaces
