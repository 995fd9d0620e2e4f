"""Joins objects by label, name and namespace, as Kubernetes and the Prometheus Operator do, and names what joins nothing."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.deploy.custom_resources import as_pod
from tests.deploy.rendered import Object
from vllm_watch.config import Config

JOB = "vllm-watch"  # the job that alerts and dashboards select
PROMETHEUS = "monitoring"  # its namespace, in every page and example
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "Namespace", "PriorityClass")
ROUTES = ("Ingress", "HTTPRoute")
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "InferenceService", "Pod")
Right = tuple[
    str, str, str, str
]  # namespace or "*", API group, resource (with a name where only that), verb


def placed(objects: Iterable[Object], namespace: str) -> list[Object]:
    """Give each the namespace that `kubectl apply -n` would."""
    return [
        each if each["kind"] in CLUSTER_WIDE
        else each | {"metadata": {"namespace": namespace} | each["metadata"]}
        for each in objects
    ]  # fmt: skip


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Does a label selector select these labels? An empty one selects all."""
    assert selector.keys() <= {"matchLabels"}, "a selector that this test cannot read"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


@dataclass(frozen=True)
class Pod:
    """What a workload makes."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def ports(self) -> dict[Any, int]:
        """Its ports, by name and by number."""
        found = [port for each in self.containers for port in each.get("ports", [])]
        return {key: port["containerPort"] for port in found for key in (port.get("name"), port["containerPort"]) if key}  # fmt: skip


class Cluster:
    """Objects as they would stand beside each other."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self.objects = list(objects)

    def of(self, *kinds: str, namespace: str | None = None) -> list[Object]:
        return [
            each for each in self.objects
            if each["kind"] in kinds and namespace in (None, each["metadata"].get("namespace"))
        ]  # fmt: skip

    def named(self, kind: str, name: str, namespace: str | None = None) -> list[Object]:
        return [each for each in self.of(kind, namespace=namespace) if each["metadata"]["name"] == name]  # fmt: skip

    @property
    def pods(self) -> list[Pod]:
        found = []
        for each in self.of(*WORKLOADS):
            pod = as_pod(each) if each["kind"] == "InferenceService" else each
            pod = pod["spec"].get("template", pod)
            metadata = each["metadata"]
            found.append(Pod(metadata["name"], metadata["namespace"], pod["metadata"].get("labels", {}), pod["spec"]))  # fmt: skip
        return found

    def watchers(self) -> Iterator[tuple[Pod, Config]]:
        """The pods that run the watcher, each with its configuration."""
        for pod in self.pods:
            for each in pod.containers:
                if "/etc/vllm-watch/vllm-watch.yaml" in each.get("args", []):
                    [mount] = [m for m in each["volumeMounts"] if m["mountPath"] == "/etc/vllm-watch"]  # fmt: skip
                    [volume] = [v for v in pod.spec["volumes"] if v["name"] == mount["name"]]
                    for found in self.named("ConfigMap", volume["configMap"]["name"], pod.namespace):  # fmt: skip
                        yield pod, Config.model_validate(yaml.safe_load(found["data"]["vllm-watch.yaml"]))  # fmt: skip


def problems(cluster: Cluster) -> list[str]:
    """Everything that refers to what is not there."""
    checks = (_workloads, _services, _monitors, _scrapes, _policies, _engines, _bindings, _rights, _budgets, _routes, _jobs)  # fmt: skip
    return [problem for check in checks for problem in check(cluster)]


def _at(thing: Object) -> str:
    return f"{thing['kind']} {thing['metadata'].get('namespace', '')}/{thing['metadata']['name']}"


def _workloads(cluster: Cluster) -> Iterator[str]:
    for each in cluster.of("Deployment", "DaemonSet", "StatefulSet"):
        if not selects(each["spec"]["selector"], each["spec"]["template"]["metadata"]["labels"]):
            yield f"{_at(each)} does not select its own pods"
    for pod in cluster.pods:
        volumes = pod.spec.get("volumes", [])
        maps = [v["configMap"] for v in volumes if "configMap" in v]
        maps += [s["configMap"] for v in volumes for s in v.get("projected", {}).get("sources", []) if "configMap" in s]  # fmt: skip
        wanted = [("ConfigMap", each["name"]) for each in maps]
        wanted += [("PersistentVolumeClaim", v["persistentVolumeClaim"]["claimName"]) for v in volumes if "persistentVolumeClaim" in v]  # fmt: skip
        wanted += [("ServiceAccount", pod.spec[key]) for key in ("serviceAccountName",) if key in pod.spec]  # fmt: skip
        for kind, name in wanted:
            if not cluster.named(kind, name, pod.namespace):
                yield f"pod of {pod.name}: no {kind} {name} in {pod.namespace}"
        priority = pod.spec.get("priorityClassName", "system-")
        if not priority.startswith("system-") and not cluster.named("PriorityClass", priority):
            yield f"pod of {pod.name}: no PriorityClass {priority}"


def _behind(cluster: Cluster, service: Object) -> list[Pod]:
    metadata, selector = service["metadata"], {"matchLabels": service["spec"]["selector"]}
    return [each for each in cluster.pods if each.namespace == metadata["namespace"] and selects(selector, each.labels)]  # fmt: skip


def _services(cluster: Cluster) -> Iterator[str]:
    for service in cluster.of("Service"):
        pods = _behind(cluster, service)
        if not pods:
            yield f"{_at(service)} selects no pod"
        for port in service["spec"]["ports"]:
            wanted = port.get("targetPort", port["port"])
            if any(wanted not in pod.ports for pod in pods):
                yield f"{_at(service)}: its pods have no port {wanted}"


def _seen_by(monitor: Object, things: Iterable[Any], namespace_of: Any) -> list[Any]:
    """The things in the namespaces where a monitor selects."""
    wanted = monitor["spec"].get("namespaceSelector", {})
    if wanted.get("any"):
        return list(things)
    names = wanted.get("matchNames", [monitor["metadata"]["namespace"]])
    return [each for each in things if namespace_of(each) in names]


def _scraped(cluster: Cluster) -> Iterator[tuple[Object, str, Pod | None, Any]]:
    """(monitor, job, pod, port) of each endpoint; a pod of None where it selects nothing that has this port."""
    for monitor in cluster.of("ServiceMonitor"):
        services = _seen_by(monitor, cluster.of("Service"), lambda each: each["metadata"]["namespace"])  # fmt: skip
        services = [each for each in services if selects(monitor["spec"]["selector"], each["metadata"].get("labels", {}))]  # fmt: skip
        for end in monitor["spec"]["endpoints"]:
            found = [(each, port) for each in services for port in each["spec"]["ports"] if port.get("name") == end["port"]]  # fmt: skip
            if not found:
                yield monitor, "", None, end["port"]
            for service, port in found:
                for pod in _behind(cluster, service):
                    yield monitor, _job(end, service["metadata"]["name"]), pod, pod.ports.get(port.get("targetPort", port["port"]))  # fmt: skip
    for monitor in cluster.of("PodMonitor"):
        pods = _seen_by(monitor, cluster.pods, lambda each: each.namespace)
        pods = [each for each in pods if selects(monitor["spec"]["selector"], each.labels)]
        for end in monitor["spec"]["podMetricsEndpoints"]:
            having = [each for each in pods if end["port"] in each.ports]
            if not having:
                yield monitor, "", None, end["port"]
            for pod in having:
                default = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
                yield monitor, _job(end, default), pod, pod.ports[end["port"]]


def _job(end: Object, default: str) -> str:
    given = [each["replacement"] for each in end.get("relabelings", []) if each.get("targetLabel") == "job"]  # fmt: skip
    return str([default, *given][-1])


def _monitors(cluster: Cluster) -> Iterator[str]:
    """Of the two kinds of monitors that one folder has, one may have nothing to scrape; never both."""
    found: dict[str, bool] = {}
    for monitor, job, pod, _ in _scraped(cluster):
        namespace = monitor["metadata"]["namespace"]
        found[namespace] = found.get(namespace, False) or pod is not None
        if pod is not None and job != JOB:
            yield f"{_at(monitor)} scrapes {pod.name} as job {job}"
    yield from (f"the monitors in {each} scrape nothing" for each, any_ in found.items() if not any_)  # fmt: skip


def _scrapes(cluster: Cluster) -> Iterator[str]:
    """Each watcher is scraped once, on the port that it listens on, and Prometheus is let in."""
    if not cluster.of("ServiceMonitor", "PodMonitor"):
        return
    for watcher, config in cluster.watchers():
        ports = [port for _, _, pod, port in _scraped(cluster) if pod == watcher]
        if ports != [config.listen_address[1]]:
            yield f"the watcher of {watcher.namespace}/{watcher.name} is scraped on {ports or 'no port'}"  # fmt: skip
        if not lets_in(cluster, watcher, config.listen_address[1], PROMETHEUS):
            yield f"the watcher of {watcher.namespace}/{watcher.name} does not let {PROMETHEUS} in"


def _policies_of(cluster: Cluster, pod: Pod, direction: str) -> list[Object]:
    return [
        each["spec"] for each in cluster.of("NetworkPolicy", namespace=pod.namespace)
        if direction in each["spec"]["policyTypes"] and selects(each["spec"]["podSelector"], pod.labels)
    ]  # fmt: skip


def _has_port(rule: Object, port: int) -> bool:
    ports = rule.get("ports")
    return ports is None or any(each["port"] <= port <= each.get("endPort", each["port"]) for each in ports)  # fmt: skip


def _is_peer(peers: list[Object] | None, home: str, namespace: str, labels: Mapping[str, str]) -> bool:  # fmt: skip
    """Is a pod with these labels in `namespace` among the peers of a policy in `home`?"""
    if peers is None:
        return True
    for each in peers:
        own = {"kubernetes.io/metadata.name": namespace}
        in_it = selects(each["namespaceSelector"], own) if "namespaceSelector" in each else namespace == home  # fmt: skip
        if in_it and selects(each.get("podSelector", {}), labels):
            return True
    return False


def lets_in(cluster: Cluster, pod: Pod, port: int, namespace: str, labels: Mapping[str, str] = {}) -> bool:  # fmt: skip
    """May a pod of this namespace connect to the port?"""
    policies = _policies_of(cluster, pod, "Ingress")
    return not policies or any(
        _has_port(rule, port) and _is_peer(rule.get("from"), pod.namespace, namespace, labels)
        for each in policies for rule in each.get("ingress", [])
    )  # fmt: skip


def lets_out(cluster: Cluster, pod: Pod, port: int, namespace: str, labels: Mapping[str, str]) -> bool:  # fmt: skip
    """May the pod connect to that port of such a pod?"""
    policies = _policies_of(cluster, pod, "Egress")
    return not policies or any(
        _has_port(rule, port) and _is_peer(rule.get("to"), pod.namespace, namespace, labels)
        for each in policies for rule in each.get("egress", [])
    )  # fmt: skip


def _policies(cluster: Cluster) -> Iterator[str]:
    for policy in cluster.of("NetworkPolicy"):
        metadata, selector = policy["metadata"], policy["spec"]["podSelector"]
        if not any(each.namespace == metadata["namespace"] and selects(selector, each.labels) for each in cluster.pods):  # fmt: skip
            yield f"{_at(policy)} selects no pod"


def _engines(cluster: Cluster) -> Iterator[str]:
    """A watcher reaches the engines that its configuration selects."""
    for watcher, config in cluster.watchers():
        for entry in config.discovery.kubernetes:
            labels = dict(each.split("=") for each in entry.selector.split(",") if "=" in each)
            for namespace in entry.namespaces or [watcher.namespace]:
                where = "any-namespace" if namespace == "*" else namespace
                if not lets_out(cluster, watcher, entry.port, where, labels):
                    yield f"the watcher of {watcher.namespace} cannot reach engines in {namespace}, port {entry.port}"  # fmt: skip


def _bindings(cluster: Cluster) -> Iterator[str]:
    for binding in cluster.of("RoleBinding", "ClusterRoleBinding"):
        namespace = binding["metadata"].get("namespace")
        role = binding["roleRef"]
        if not cluster.named(role["kind"], role["name"], namespace if role["kind"] == "Role" else None):  # fmt: skip
            yield f"{_at(binding)}: no {role['kind']} {role['name']}"
        for subject in binding["subjects"]:
            if not cluster.named(subject["kind"], subject["name"], subject.get("namespace", namespace)):  # fmt: skip
                yield f"{_at(binding)}: no {subject['kind']} {subject['name']} in {subject.get('namespace', namespace)}"  # fmt: skip


def needed(config: Config, own: str) -> set[Right]:
    """What a configuration asks of the API server."""
    watched = {name for each in config.discovery.kubernetes for name in each.namespaces or (own,)}
    found = {(name, "", "pods", verb) for name in watched for verb in ("list", "watch")}
    for hook in config.hooks.kubernetes:
        for name in {hook.namespace} if hook.namespace else watched or {own}:
            found.add((name, "", "pods", "get"))
            if hook.action == "evict":
                found.add((name, "", "pods/eviction", "create"))
            else:
                kind, _, workload = hook.workload.partition("/")
                group = "leaderworkerset.x-k8s.io" if kind == "leaderworkerset" else "apps"
                found |= {(name, group, f"{kind}s:{workload}", verb) for verb in ("get", "patch")}
    if config.notifications.kubernetes:
        for name in watched or {own}:
            found |= {(name, "", "pods", "get"), (name, "", "events", "create")}
    lock = config.restart.lock
    if lock.kind == "lease":
        place = lock.namespace or own
        found.add((place, "coordination.k8s.io", "leases", "create"))
        found |= {(place, "coordination.k8s.io", f"leases:{lock.name}", verb) for verb in ("get", "update")}  # fmt: skip
    return found


def granted(cluster: Cluster, pod: Pod) -> set[Right]:
    """What the pod's account may do."""
    found: set[Right] = set()
    account = (pod.spec.get("serviceAccountName", "default"), pod.namespace)
    for binding in cluster.of("RoleBinding", "ClusterRoleBinding"):
        namespace = binding["metadata"].get("namespace")
        if account not in [(each["name"], each.get("namespace", namespace)) for each in binding["subjects"]]:  # fmt: skip
            continue
        role = binding["roleRef"]
        for made in cluster.named(role["kind"], role["name"], namespace if role["kind"] == "Role" else None):  # fmt: skip
            for rule in made["rules"]:
                found |= {
                    (namespace or "*", group, resource + (f":{name}" if name else ""), verb)
                    for group in rule["apiGroups"] for resource in rule["resources"]
                    for name in rule.get("resourceNames", [""]) for verb in rule["verbs"]
                }  # fmt: skip
    return found


def covers(have: Collection[Right], right: Right) -> bool:
    """Is the right among those, or part of a wider one?"""
    namespace, group, resource, verb = right
    return any(
        (place, group, what, verb) in have
        for place in (namespace, "*") for what in (resource, resource.partition(":")[0])
    )  # fmt: skip


def _rights(cluster: Cluster) -> Iterator[str]:
    for pod, config in cluster.watchers():
        have = granted(cluster, pod)
        for right in sorted(needed(config, pod.namespace)):
            if not covers(have, right):
                yield f"the watcher of {pod.namespace}/{pod.name} may not {right[3]} {right[2]} in {right[0]}"  # fmt: skip


def _budgets(cluster: Cluster) -> Iterator[str]:
    for each in cluster.of("PodDisruptionBudget"):
        if not any(pod.namespace == each["metadata"]["namespace"] and selects(each["spec"]["selector"], pod.labels) for pod in cluster.pods):  # fmt: skip
            yield f"{_at(each)} selects no pod"


def _backends(route: Object) -> list[tuple[str, Any]]:
    """(Service, port) of all that a route sends requests to."""
    if route["kind"] == "Ingress":
        found = [path["backend"]["service"] for rule in route["spec"]["rules"] for path in rule["http"]["paths"]]  # fmt: skip
        return [(each["name"], each["port"].get("name") or each["port"]["number"]) for each in found]  # fmt: skip
    return [(each["name"], each["port"]) for rule in route["spec"]["rules"] for each in rule["backendRefs"]]  # fmt: skip


def _routes(cluster: Cluster) -> Iterator[str]:
    """They reach a Service, and some namespace other than Prometheus' is let in to its pods."""
    for route in cluster.of(*ROUTES):
        for name, port in _backends(route):
            found = cluster.named("Service", name, route["metadata"]["namespace"])
            ports = {key for each in found for p in each["spec"]["ports"] for key in (p.get("name"), p["port"])}  # fmt: skip
            if port not in ports:
                yield f"{_at(route)}: no Service {name} with port {port}"
            for pod in (pod for each in found for pod in _behind(cluster, each)):
                names = set(re.findall(r"metadata\.name': '([^']+)'", str(_policies_of(cluster, pod, "Ingress"))))  # fmt: skip
                if _policies_of(cluster, pod, "Ingress") and not names - {PROMETHEUS, pod.namespace}:  # fmt: skip
                    yield f"{_at(route)}: no ingress controller is let in to {pod.name}"


def _jobs(cluster: Cluster) -> Iterator[str]:
    """The alerts select the job by which the watchers are scraped."""
    for rule in cluster.of("PrometheusRule"):
        jobs = set(re.findall(r'\bjob="([^"]+)"', str(rule["spec"]).replace('\\"', '"')))
        if jobs - {JOB}:
            yield f"{_at(rule)} selects the jobs {sorted(jobs)}"
