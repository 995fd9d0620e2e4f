"""Each selector, name and namespace of the examples joins what it must, in the namespaces that the docs apply them to."""

import copy
import re
from collections.abc import Callable

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.deploy.joins import Cluster, placed, problems
from tests.deploy.rendered import ALL, WAYS, Object, rendered

PAGE = ROOT / "docs/kubernetes.md"
APPLIED = re.compile(r"kubectl apply(?: -n (?P<namespace>\S+))? -k deploy/kubernetes/(?P<folder>\S+)")  # fmt: skip
OF_ITS_OWN = {"node": "vllm-watch", "node-host-pid": "vllm-watch"}
"""Folders whose objects name their namespace."""


def namespaces() -> dict[str, set[str]]:
    """Folder → the namespaces in which docs/kubernetes.md applies it."""
    found: dict[str, set[str]] = {}
    for each in APPLIED.finditer(PAGE.read_text()):
        found.setdefault(each["folder"], set()).add(each["namespace"] or OF_ITS_OWN[each["folder"]])
    patched = re.findall(r"kubectl -n (\S+) patch", PAGE.read_text())
    return found | {each: set(patched) for each in WAYS if each.startswith("sidecar")}


def cluster(folder: str) -> Cluster:
    """A way to install the watcher, with the monitors beside it and the rules, as the page applies them."""
    applied = namespaces()
    [namespace] = applied[folder]
    assert namespace in applied["monitors"], f"the page applies no monitors in {namespace}"
    [rules] = applied["monitoring"]
    return Cluster(
        placed(rendered(folder), namespace)
        + placed(rendered("monitors"), namespace)
        + placed(rendered("monitoring"), rules)
    )


@pytest.mark.parametrize("folder", WAYS)
def test_every_selector_selects(folder: str) -> None:
    """Services, pods, monitors, policies, roles and rules of one way to install it."""
    found = cluster(folder)
    assert len(list(found.watchers())) == 1
    assert problems(found) == []


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/gate").iterdir()), ids=lambda each: each.name)  # fmt: skip
def test_every_selector_of_a_gate_selects(file: object) -> None:
    """The examples of the gate, beside an engine."""
    objects = [
        each for each in yaml.safe_load_all((ROOT / str(file)).read_text()) if "kind" in each
    ]
    assert problems(Cluster(placed(objects, "llm"))) == []


def test_all_that_the_page_applies_is_there() -> None:
    """No command of docs/kubernetes.md names a folder that is missing, and each way is on the page."""
    assert namespaces().keys() <= {*ALL}
    assert {*WAYS, "monitoring", "monitors"} <= namespaces().keys()


def rename(kind: str, *path: object, to: object) -> Callable[[list[Object]], None]:
    def spoil(objects: list[Object]) -> None:
        [thing] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == "vllm-watch"]  # fmt: skip
        for key in path[:-1]:
            thing = thing[key]
        thing[path[-1]] = to

    return spoil


BROKEN: dict[str, tuple[str, str, Callable[[list[Object]], None]]] = {
    "a monitor that looks elsewhere": ("fleet", "scrape nothing", rename("ServiceMonitor", "spec", "namespaceSelector", to={"matchNames": ["vllm"]})),
    "a Service without pods": ("fleet", "selects no pod", rename("Service", "spec", "selector", to={"app": "another"})),
    "a Service of another name": ("fleet", "as job watcher", rename("Service", "metadata", "name", to="watcher")),
    "a port that is not there": ("fleet", "have no port", rename("Service", "spec", "ports", 0, "targetPort", to="metrics")),
    "a policy without pods": ("fleet", "selects no pod", rename("NetworkPolicy", "spec", "podSelector", to={"matchLabels": {"app": "x"}})),
    "a policy that shuts Prometheus out": ("fleet", "let monitoring in", rename("NetworkPolicy", "spec", "ingress", 0, "from", 0, "namespaceSelector", "matchLabels", to={"kubernetes.io/metadata.name": "prometheus"})),
    "a policy that shuts the engines out": ("fleet", "cannot reach engines", rename("NetworkPolicy", "spec", "egress", 2, "ports", 0, "port", to=8080)),
    "an account that is not there": ("fleet", "no ServiceAccount", rename("ServiceAccount", "metadata", "name", to="another")),
    "a volume that is not there": ("fleet", "no PersistentVolumeClaim", rename("PersistentVolumeClaim", "metadata", "name", to="another")),
    "a pod without its label": ("sidecar", "scrape nothing", rename("PodMonitor", "spec", "selector", "matchLabels", to={"vllm-watch/scrape": "yes"})),
    "a monitor that names no job": ("node", "as job vllm-watch/vllm-watch", rename("PodMonitor", "spec", "podMetricsEndpoints", 0, "relabelings", to=[])),
    "rules of another job": ("fleet", "selects the jobs", rename("PrometheusRule", "spec", "groups", to=[{"rules": [{"expr": 'up{job="watcher"}'}]}])),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "said", "spoil"), BROKEN.values(), ids=BROKEN)
def test_broken_join_is_found(
    folder: str, said: str, spoil: Callable[[list[Object]], None]
) -> None:
    """The check above sees what it is there for."""
    objects = copy.deepcopy(cluster(folder).objects)
    spoil(objects)
    assert said in str(problems(Cluster(objects)))
