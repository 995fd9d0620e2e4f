"""Which pods of a Kubernetes cluster are engines: namespaces, labels, a node, and where a pod's server listens."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from vllm_watch.settings.base import Port, Settings, problem, quoted

NAMESPACES_MAX = 50
"""Each is a watch of its own, an open connection to the API server; more than a few is what `*` is for."""

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
    """The pods that a label selector finds, from the API server, as the service account of our own pod."""

    selector: str = Field(min_length=1, max_length=1000)
    """Label selector as `kubectl get pods -l` takes it: `app=vllm`, `app in (a,b),!canary`."""

    namespaces: tuple[Annotated[str, AfterValidator(_namespace)], ...] = Field(
        (), max_length=NAMESPACES_MAX
    )
    """Where to look; `*` alone for the whole cluster, which takes a ClusterRole.
    Default: our own
    Why: A Role of one namespace is enough for it."""

    node_name: str = Field("", max_length=253)
    """Only pods of this node; `$NAME` is read from the environment, where a DaemonSet has its
    `spec.nodeName`.
    Default: all nodes"""

    port: Port = 8000
    """Port of a pod that does not say another one.
    Why: What `vllm serve` listens on."""

    scheme: Literal["http", "https"] = "http"
    """How a pod that does not say otherwise is asked.
    Why: vLLM serves in the clear unless it is given a certificate."""

    @field_validator("selector")
    @classmethod
    def _selects(cls, value: str) -> str:
        for part in _OUTSIDE_BRACKETS.split(value):
            if not _REQUIREMENT.fullmatch(part.strip()):
                remedy = "write it as kubectl get pods -l takes it, such as app=vllm"
                raise problem(f"{quoted(part.strip())} is not part of a label selector", remedy)
        return value

    @field_validator("namespaces")
    @classmethod
    def _all_or_some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in value and len(value) > 1:
            raise problem("'*' stands beside other namespaces", "write it alone, or leave it out")
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
    """May two pods have one name, being of different namespaces?"""
    namespaces = {name for entry in entries for name in entry.namespaces or ("",)}
    return len(namespaces) > 1 or "*" in namespaces
