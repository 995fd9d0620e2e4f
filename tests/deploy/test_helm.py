"""deploy/helm: what a real helm makes of the chart is valid, joins what it must, and is what kustomize makes of deploy/kubernetes."""

import json
import re
import subprocess
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.daemon_process import ROOT
from tests.deploy.joins import Cluster, granted, lets_in, needed, placed, problems
from tests.deploy.rendered import Object, rendered
from tests.deploy.test_kubernetes import check
from vllm_watch import __version__
from vllm_watch.config import Config

CHART = ROOT / "deploy/helm/vllm-watch"
CI = sorted((CHART / "ci").iterdir())
DIGEST = "sha256:" + "0" * 64
KUBE_PROMETHEUS_STACK = {"release": "kube-prometheus-stack"}
"""The labels by which its Prometheus selects monitors and rules, in all namespaces."""
Helm = Callable[..., str]
Values = dict[str, Any]


def template(run_helm: Helm, *arguments: object, namespace: str = "llm") -> list[Object]:
    """What would be installed."""
    said = run_helm("template", "vllm-watch", CHART, "--namespace", namespace, *arguments)
    return [each for each in yaml.load_all(said, yaml.CSafeLoader) if each]


def with_values(
    run_helm: Helm, values: Values, folder: Path, namespace: str = "llm"
) -> list[Object]:
    """The same, with a file of values and the image of deploy/kubernetes."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump({"image": {"digest": DIGEST}} | values))
    return template(run_helm, "--values", file, namespace=namespace)


def is_test(thing: Object) -> bool:
    return "helm.sh/hook" in thing["metadata"].get("annotations", {})


def compared(things: Iterable[Object], namespace: str) -> dict[tuple[str, str], Object]:
    """By kind and name, without what each way of installing adds for itself: kustomize's hash in the name of a ConfigMap
    and its namespace, the chart's checksum, tests and cluster-wide names; the configuration as it is meant."""
    found = {}
    for each in things:
        text = re.sub(r"(vllm-watch-(?:config|web))-[a-z0-9]{10}\b", r"\1", json.dumps(each))
        thing: Object = json.loads(text.replace(f"{namespace}-vllm-watch", "vllm-watch"))
        metadata = thing["metadata"]
        metadata.pop("namespace", None)
        if thing["kind"] == "ConfigMap":
            metadata["labels"] = {}
            thing["data"] = {name: yaml.safe_load(text) for name, text in thing["data"].items()}
        if thing["kind"] in ("Deployment", "DaemonSet"):
            pod = thing["spec"]["template"]
            pod["metadata"].pop("annotations", None)
            for several in (
                pod["spec"]["volumes"],
                *(c["volumeMounts"] for c in pod["spec"]["containers"] if "volumeMounts" in c),
            ):
                several.sort(
                    key=lambda named: str(named["name"])
                )  # kustomize puts those of a patch first
        if not is_test(each) and thing["kind"] != "Namespace":
            found[thing["kind"], metadata["name"]] = thing
    return found


def config_of(folder: str) -> Values:
    """The configuration of a folder of deploy/kubernetes."""
    found: Values = yaml.safe_load(
        (ROOT / f"deploy/kubernetes/{folder}/vllm-watch.yaml").read_text()
    )
    return found


SAME: dict[str, tuple[str, Values]] = {
    "fleet": ("llm", {}),
    "fleet-evict": ("llm", {"config": config_of("fleet-evict")}),
    "fleet-secure": ("llm", {"config": config_of("fleet-secure"), "secretName": "vllm-watch-web", "tls": {"enabled": True}}),
    "node": ("vllm-watch", {"mode": "node"}),
    "node-host-pid": ("vllm-watch", {"mode": "node", "node": {"hostPID": True}}),
    "sidecar": ("llm", {"mode": "sidecar"}),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "namespace", "values"), [(key, *each) for key, each in SAME.items()], ids=SAME)  # fmt: skip
def test_chart_says_what_kustomize_says(
    folder: str, namespace: str, values: Values, run_helm: Helm, tmp_path: Path
) -> None:
    """Every object, every key; beside an engine all but the engine."""
    wanted = compared(rendered(folder), namespace)
    wanted.pop(("Deployment", "llama"), None)
    assert compared(with_values(run_helm, values, tmp_path, namespace), namespace) == wanted


def test_monitoring_is_what_kustomize_says(run_helm: Helm) -> None:
    """Monitors, rules and dashboards; each bears the label that Prometheus selects by."""
    things = template(run_helm, "--values", CHART / "ci/fleet-values.yaml")
    own = [each for each in things if each["apiVersion"].startswith("monitoring.coreos.com/")]
    assert {each["kind"] for each in own} == {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    for each in own:
        assert each["metadata"]["labels"].items() >= KUBE_PROMETHEUS_STACK.items()
        del each["metadata"]["labels"]["release"]
    wanted = compared([*rendered("monitors"), *rendered("monitoring")], "llm")
    assert wanted.items() <= compared(things, "llm").items()
    boards = [each for each in things if each["metadata"]["name"].startswith("vllm-watch-dashboard-")]  # fmt: skip
    assert all(each["metadata"]["labels"] == {"grafana_dashboard": "1"} for each in boards)


def beside(things: list[Object], namespace: str, mode: str) -> Cluster:
    """With the engines' pods of `mode` sidecar, which the chart does not make."""
    engines = [each for each in rendered("sidecar") if each["kind"] == "Deployment"]
    more = placed(engines, namespace) if mode == "sidecar" else []
    return Cluster([*placed(things, namespace), *more])


def right(things: list[Object], values: Values, namespace: str = "llm") -> None:
    """Each object is one that Kubernetes knows, each selector selects, no right is missing or too many."""
    for thing in things:
        check(thing if not is_test(thing) else without_hooks(thing))
    assert "Secret" not in {each["kind"] for each in things}
    mode = values.get("mode", "fleet")
    cluster = beside([each for each in things if not is_test(each)], namespace, mode)
    wrong = problems(cluster)
    if not values.get("rbac", {}).get("create", True):
        wrong = [each for each in wrong if " may not " not in each]
    assert wrong == []
    watchers = list(cluster.watchers())
    assert len(watchers) == 1
    for pod, config in watchers:
        if values.get("rbac", {}).get("create", True):
            assert granted(cluster, pod) == needed(config, namespace)
        else:
            assert granted(cluster, pod) == set()
        if not needed(config, namespace) and mode != "sidecar":
            assert pod.spec["automountServiceAccountToken"] is False


def without_hooks(thing: Object) -> Object:
    """A test's object, as it is applied."""
    return thing | {"metadata": {k: v for k, v in thing["metadata"].items() if k != "annotations"}}


@pytest.mark.parametrize("file", CI, ids=lambda each: each.stem)
def test_every_example_of_values_is_right(file: Path, run_helm: Helm) -> None:
    """Those in ci/, as chart-testing would install them."""
    right(template(run_helm, "--values", file), yaml.safe_load(file.read_text()))


MONITORED: Values = {"enabled": True, "rules": False, "dashboards": {"enabled": False}, "alertmanagerConfig": {
    "enabled": True, "page": {"webhookConfigs": [{"urlSecret": {"name": "s", "key": "page"}}]},
    "ticket": {"webhookConfigs": [{"urlSecret": {"name": "s", "key": "ticket"}}]},
}}  # fmt: skip
CHOICES: dict[str, list[Values]] = {
    "monitoring": [{}, {"monitoring": MONITORED}],
    "policy": [{}, {"networkPolicy": {"enabled": False}}],
    "rights": [{}, {"rbac": {"create": False}, "secretName": "keys"}],
}
IN_A_FLEET: dict[str, list[Values]] = {
    "reached": [{}, *(yaml.safe_load((CHART / f"ci/{each}-values.yaml").read_text()) for each in ("ingress", "httproute"))],
    "more": [{}, {"podDisruptionBudget": {"enabled": True, "maxUnavailable": 0}, "tls": {"enabled": True}, "secretName": "keys"}],
}  # fmt: skip


def combinations(mode: str) -> list[Values]:
    """All of them."""
    choices = [*CHOICES.values(), *(IN_A_FLEET.values() if mode == "fleet" else ())]
    found = []
    for chosen in product(*choices):
        values: Values = {"mode": mode}
        for each in chosen:
            values |= each
        found.append(values)
    return found


@pytest.mark.parametrize("mode", ["fleet", "node", "sidecar"])
def test_every_combination_is_right(mode: str, run_helm: Helm, tmp_path: Path) -> None:
    """What can be switched on and off, with all else."""
    for values in combinations(mode):
        right(with_values(run_helm, values, tmp_path), values)


def test_every_value_shows_in_what_kubernetes_takes(run_helm: Helm, tmp_path: Path) -> None:
    """Values other than their defaults; and a changed configuration makes a new pod."""
    things = with_values(run_helm, {
        "image": {"repository": "r.example/w", "digest": "", "tag": "1.2", "pullSecrets": ["r"]},
        "config": {"targets": [{"url": "http://h:8001"}], "discovery": None},
        "storage": {"size": "9Gi", "className": "fast"}, "resources": {"limits": {"memory": "1Gi"}},
        "networkPolicy": {"scrapedFrom": "prom", "enginePorts": [8001, 8002], "extraEgress": [{"ports": [{"port": 25, "protocol": "TCP"}]}]},
        "pod": {"annotations": {"a/b": "c"}, "env": [{"name": "A", "value": "b"}], "nodeSelector": {"d": "e"}, "tolerations": [{"operator": "Exists"}],
                "affinity": {"nodeAffinity": {}}},
        "monitoring": {"enabled": True, "interval": "30s", "rules": False, "dashboards": {"label": "board", "labelValue": "yes", "annotations": {"grafana_folder": "vLLM"}}},
    }, tmp_path)  # fmt: skip
    made = compared(things, "llm")
    workload = made["Deployment", "vllm-watch"]["spec"]["template"]["spec"]
    [container] = workload["containers"]
    assert container["image"] == "r.example/w:1.2"
    assert workload["imagePullSecrets"] == [{"name": "r"}]
    assert container["resources"] == {"limits": {"memory": "1Gi"}}
    assert container["env"][-1] == {"name": "A", "value": "b"}
    assert workload["nodeSelector"] == {"d": "e"}
    assert (workload["tolerations"], workload["affinity"]) == ([{"operator": "Exists"}], {"nodeAffinity": {}})  # fmt: skip
    claim = made["PersistentVolumeClaim", "vllm-watch"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "9Gi")
    policy = made["NetworkPolicy", "vllm-watch"]["spec"]
    assert [each["port"] for each in policy["egress"][-2]["ports"]] == [8001, 8002]
    assert policy["egress"][-1]["ports"][0]["port"] == 25
    assert "'prom'" in str(policy["ingress"])
    config = made["ConfigMap", "vllm-watch-config"]["data"]["vllm-watch.yaml"]
    assert [each.url for each in Config.model_validate(config).targets] == ["http://h:8001"]
    assert "discovery" not in config
    assert made["ServiceMonitor", "vllm-watch"]["spec"]["endpoints"][0]["interval"] == "30s"
    assert ("PrometheusRule", "vllm-watch") not in made
    [board, *_] = [each for each in things if "dashboard" in each["metadata"]["name"]]
    assert board["metadata"]["labels"] == {"board": "yes"}
    assert board["metadata"]["annotations"] == {"grafana_folder": "vLLM"}
    sums = {next(t for t in each if t["kind"] == "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for each in (things, template(run_helm))}  # fmt: skip
    assert len(sums) == 2


def test_alerts_are_routed_as_in_the_example(run_helm: Helm) -> None:
    """The AlertmanagerConfig has the routes and the inhibition of deploy/alertmanager.yml, but for restarts."""
    made = template(run_helm, "--values", CHART / "ci/secure-values.yaml")
    [spec] = [each["spec"] for each in made if each["kind"] == "AlertmanagerConfig"]
    example = yaml.safe_load((ROOT / "deploy/alertmanager.yml").read_text())

    def as_text(matchers: list[Object]) -> list[str]:
        return [f'{each["name"]}{each["matchType"]}"{each["value"]}"' for each in matchers]

    rules = [
        {"source_matchers": as_text(each["sourceMatch"]), "target_matchers": as_text(each["targetMatch"]), "equal": each["equal"]}
        for each in spec["inhibitRules"]
    ]  # fmt: skip
    assert rules == example["inhibit_rules"]
    [page] = spec["route"]["routes"]
    [wanted] = [each for each in example["route"]["routes"] if each["receiver"] == "page"]
    assert as_text(page["matchers"]) == wanted["matchers"]
    for made_route, route in ((page, wanted), (spec["route"], example["route"])):
        times = [made_route[key] for key in ("groupWait", "groupInterval", "repeatInterval")]
        assert times == [route[key] for key in ("group_wait", "group_interval", "repeat_interval")]
    assert spec["route"]["groupBy"] == page["groupBy"] == example["route"]["group_by"]
    assert {each["name"] for each in spec["receivers"]} == {spec["route"]["receiver"], page["receiver"]}  # fmt: skip


def test_the_charts_test_reaches_the_watcher(run_helm: Helm) -> None:
    """`helm test` asks the Service, from a pod that is let in while it runs and at no other time."""
    things = placed(template(run_helm), "llm")
    [pod] = [each for each in things if each["kind"] == "Pod"]
    [arguments] = [each["args"] for each in pod["spec"]["containers"]]
    assert arguments == ["probe", "--url", "http://vllm-watch:9470"]
    labels = pod["metadata"]["labels"]
    for among, expected in ((things, True), ([t for t in things if not is_test(t)], False)):
        cluster = Cluster(among)
        [(watcher, _)] = cluster.watchers()
        assert lets_in(cluster, watcher, 9470, "llm", labels) is expected


def test_notes_have_the_sidecars_patch(run_helm: Helm) -> None:
    """The snippet is that of deploy/kubernetes/sidecar, with the image of the values."""
    said = run_helm("install", "x", CHART, "-n", "llm", "--dry-run=client", "--set", "mode=sidecar", "--set", f"image.digest={DIGEST}")  # fmt: skip
    snippet = said.partition("--patch-file patch.yaml\n")[2].partition("Prometheus Operator?")[0]
    patch = yaml.safe_load((ROOT / "deploy/kubernetes/sidecar/patch.yaml").read_text())
    assert yaml.safe_load(snippet) == patch
    assert "kubectl -n llm patch deployment llama" in said


WRONG: dict[str, tuple[Values, str]] = {
    "a key spelt wrong": ({"storage": {"sise": "1Gi"}}, "additional properties"),
    "a mode that is none": ({"mode": "cluster"}, "mode"),
    "a tag for a digest": ({"image": {"digest": "latest"}}, "digest"),
    "a port that is none": ({"networkPolicy": {"enginePorts": [0]}}, "enginePorts"),
    "an interval without a unit": ({"monitoring": {"interval": "15"}}, "interval"),
    "TLS without a Secret": ({"tls": {"enabled": True}}, "secretName"),
    "an Ingress without a host": ({"ingress": {"enabled": True}}, "ingress.host"),
    "a route without a gateway": ({"httpRoute": {"enabled": True, "host": "h"}}, "parentRefs"),
    "two ways in": ({key: value for each in IN_A_FLEET["reached"] for key, value in each.items()}, "enable one"),
    "an Ingress of a node": ({"mode": "node", "ingress": {"enabled": True, "host": "h"}}, "only in mode fleet"),
    "no receiver": ({"monitoring": {"enabled": True, "alertmanagerConfig": {"enabled": True}}}, "its page"),
}  # fmt: skip


@pytest.mark.parametrize(("values", "said"), WRONG.values(), ids=WRONG)
def test_wrong_values_are_refused(
    values: Values, said: str, run_helm: Helm, tmp_path: Path
) -> None:
    """Before anything is applied, with the value that is wrong."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        with_values(run_helm, values, tmp_path)
    assert said in refused.value.stderr


def test_old_kubernetes_is_refused_a_sidecar(run_helm: Helm) -> None:
    """It has no native sidecars."""
    with pytest.raises(subprocess.CalledProcessError, match="1"):
        template(run_helm, "--set", "mode=sidecar", "--kube-version", "1.28")


def test_helm_finds_nothing_to_complain_of(run_helm: Helm, tmp_path: Path) -> None:
    """The chart is of this version of the program, and whole when it is packaged."""
    for file in CI:
        said = run_helm("lint", "--strict", CHART, "--values", file)
        assert "1 chart(s) linted, 0 chart(s) failed" in said
        assert "[INFO]" not in said
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    assert chart["icon"].endswith(f"{CHART.relative_to(ROOT)}/icon.svg")
    assert (CHART / "icon.svg").exists()
    run_helm("package", CHART, "--destination", tmp_path)
    [package] = tmp_path.glob("*.tgz")
    values = CHART / "ci/fleet-values.yaml"
    assert run_helm("template", "x", package, "-f", values) == run_helm(
        "template", "x", CHART, "-f", values
    )


def test_values_are_described() -> None:
    """README.md has each value with its meaning; the schema knows the same."""
    rows = re.findall(r"^\| `([\w.]+)` \| `.+` \| (.*) \|$", (CHART / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    assert all(text for _, text in rows)
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(yaml.safe_load((CHART / "values.yaml").read_text()), schema)
    for key, _ in rows:
        place = schema
        for name in key.split("."):
            place = place["properties"][name]
