"""deploy/helm: what a real helm makes of the chart is what kustomize makes of deploy/kubernetes, object by object."""

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.deploy.helm import helm
from tests.deploy.rendered import Object, rendered
from tests.deploy.test_kubernetes import check
from vllm_watch import __version__
from vllm_watch.config import Config

CHART = ROOT / "deploy/helm/vllm-watch"
DIGEST = "sha256:" + "0" * 64
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """A helm with a home of its own. Raises CalledProcessError where it refuses."""
    folder = tmp_path_factory.mktemp("helm")
    program = helm(folder)
    environ = os.environ | {"HOME": str(folder), "KUBECONFIG": os.devnull}

    def call(*arguments: object) -> str:
        return subprocess.run(
            [program, *map(str, arguments)], env=environ, capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip

    return call


def template(run: Helm, *arguments: object, namespace: str = "llm") -> list[Object]:
    """What would be installed."""
    said = run("template", "vllm-watch", CHART, "--namespace", namespace, "--set", f"image.digest={DIGEST}", *arguments)  # fmt: skip
    return [each for each in yaml.safe_load_all(said) if each]


def compared(things: Sequence[Object]) -> dict[tuple[str, str], Object]:
    """By kind and name, without what each way of installing adds for itself: kustomize's hash in the name of the
    ConfigMap, the chart's checksum; and the configuration as it is meant, not as it is written."""
    found = {}
    for each in things:
        thing: Object = json.loads(json.dumps(each))
        metadata = thing["metadata"]
        if thing["kind"] == "ConfigMap":
            metadata |= {"name": "vllm-watch-config", "labels": {}}
            thing["data"] = {name: yaml.safe_load(text) for name, text in thing["data"].items()}
        if thing["kind"] == "Deployment":
            pod = thing["spec"]["template"]
            pod["metadata"].pop("annotations", None)
            volume = next(v for v in pod["spec"]["volumes"] if "configMap" in v)
            assert volume["configMap"]["name"].startswith("vllm-watch-config")
            volume["configMap"] = {}
        found[thing["kind"], metadata["name"]] = thing
    assert len(found) == len(things)
    return found


def config_of(folder: str, to: Path) -> Path:
    """The configuration of a folder of deploy/kubernetes, as values."""
    file = to / "values.yaml"
    text = (ROOT / f"deploy/kubernetes/{folder}/config.yaml").read_text()
    file.write_text(yaml.safe_dump({"config": yaml.safe_load(text)}))
    return file


SAME: dict[str, tuple[str, ...]] = {
    "fleet": (),
    "fleet-evict": ("rights.evict=true", "rights.lease=true"),
}


@pytest.mark.parametrize(("folder", "rights"), SAME.items(), ids=SAME)
def test_chart_says_what_kustomize_says(
    folder: str, rights: tuple[str, ...], run: Helm, tmp_path: Path
) -> None:
    """Every object, every key."""
    values = config_of(folder, tmp_path)
    made = template(run, "--values", values, *(a for each in rights for a in ("--set", each)))
    assert compared(made) == compared(rendered(folder))


RIGHTS = {
    "rights/discovery-cluster": "rights.discovery=cluster",
    "rights/rollout": "rights.rollout=true",
    "rights/events": "rights.events=true",
}


@pytest.mark.parametrize(("folder", "value"), RIGHTS.items(), ids=RIGHTS)
def test_each_right_is_that_of_its_folder(folder: str, value: str, run: Helm) -> None:
    """In the namespace that the folder names."""
    made = compared(template(run, "--set", value, namespace="vllm-watch"))
    wanted = compared(rendered(folder))
    assert wanted.items() <= made.items()


def test_no_right_without_discovery(run: Helm) -> None:
    """Targets that are written out need nothing of the API server."""
    kinds = {each["kind"] for each in template(run, "--set", "rights.discovery=none")}
    assert kinds.isdisjoint({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})


def test_every_value_shows_in_what_kubernetes_takes(run: Helm, tmp_path: Path) -> None:
    """All values at once, other than their defaults; and a changed configuration makes a new pod."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({
        "image": {"repository": "r.example/w", "digest": "", "tag": "1.2"},
        "config": {"targets": [{"url": "http://h:8001"}], "discovery": None},
        "rights": {"discovery": "cluster", "evict": True, "rollout": True, "events": True, "lease": True},
        "storage": {"size": "9Gi", "className": "fast"},
        "networkPolicy": {"scrapedFrom": "prom", "enginePorts": [8001, 8002]},
        "resources": {"limits": {"memory": "1Gi"}},
    }))  # fmt: skip
    said = run("template", "vllm-watch", CHART, "--values", values)
    things = [each for each in yaml.safe_load_all(said) if each]
    for each in things:
        check(each)
    made = compared(things)
    pod = made["Deployment", "vllm-watch"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == "r.example/w:1.2"
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    claim = made["PersistentVolumeClaim", "vllm-watch"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "9Gi")
    policy = made["NetworkPolicy", "vllm-watch"]["spec"]
    assert [each["port"] for each in policy["egress"][-1]["ports"]] == [8001, 8002]
    assert "'prom'" in str(policy["ingress"])
    config = made["ConfigMap", "vllm-watch-config"]["data"]["config.yaml"]
    [target] = Config.model_validate(config).targets
    assert target.url == "http://h:8001"
    assert "discovery" not in config
    sums = {next(t for t in each if t["kind"] == "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for each in (things, template(run))}  # fmt: skip
    assert len(sums) == 2


WRONG = {
    "a key spelt wrong": "rights.evikt=true", "a word for a right": "rights.discovery=all", "a tag for a digest": "image.digest=latest",
    "every port open": "networkPolicy.enginePorts=null",
}  # fmt: skip


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_wrong_values_are_refused(value: str, run: Helm) -> None:
    """Before anything is applied."""
    with pytest.raises(subprocess.CalledProcessError):
        run("template", "vllm-watch", CHART, "--set", value)


def test_helm_finds_nothing_to_complain_of(run: Helm) -> None:
    """The chart is of this version of the program."""
    assert "1 chart(s) linted, 0 chart(s) failed" in run("lint", "--strict", CHART)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
