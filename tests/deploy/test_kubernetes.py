"""deploy/kubernetes: every object is one that Kubernetes 1.32 knows, key by key, and says what the program does."""

import copy
import json
import os
import re
import site
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.daemon_process import ROOT, daemon
from tests.deploy.custom_resources import SCHEMAS, as_pod
from tests.deploy.rendered import (
    ALL,
    FOLDER,
    WAYS,
    Object,
    copied,
    of_kind,
    render,
    rendered,
    run,
)
from tests.restart.hooks import manifests
from vllm_watch.config import Config
from vllm_watch.settings.restart import LockSettings

KUBERNETES = "1.32"
SIDECARS = ("sidecar", "sidecar-kserve", "sidecar-production-stack")
OF_ITS_OWN = ("fleet", "fleet-evict", "fleet-secure", "node", "node-host-pid")
CONFIG = "vllm-watch-config"


def check(thing: Object) -> None:
    """Raises ValidationError where Kubernetes, or the custom resource's schema, would not take it as it is."""
    if thing["kind"] in SCHEMAS:
        jsonschema.validate(thing, SCHEMAS[thing["kind"]])
        if thing["kind"] == "InferenceService":
            check(as_pod(thing))
        return
    kubernetes_validate.validate(thing, KUBERNETES, strict=True)


def pod_spec(folder: str) -> Object:
    """Of the pod in which the watcher is."""
    [made] = of_kind(folder, "Deployment", "DaemonSet", "InferenceService")
    template = as_pod(made) if made["kind"] == "InferenceService" else made["spec"]["template"]
    spec: Object = template["spec"]
    return spec


def watcher(folder: str) -> Object:
    spec = pod_spec(folder)
    [found] = [each for each in [*spec.get("initContainers", []), *spec["containers"]] if each["name"] == "vllm-watch"]  # fmt: skip
    return dict(found)


def engine(folder: str) -> Object:
    [found] = [each for each in pod_spec(folder)["containers"] if each["name"] != "vllm-watch"]
    return dict(found)


def configuration(folder: str) -> Config:
    [found] = [each for each in of_kind(folder, "ConfigMap") if each["metadata"]["name"].startswith(CONFIG)]  # fmt: skip
    return Config.model_validate(yaml.safe_load(found["data"]["vllm-watch.yaml"]))


@pytest.mark.parametrize("folder", ALL)
def test_every_object_is_one_that_kubernetes_knows(folder: str) -> None:
    """All that kubectl would apply, each key of it."""
    things = rendered(folder)
    for thing in things:
        check(thing)
    names = [(each["kind"], each["metadata"]["name"]) for each in things]
    assert names
    assert len(set(names)) == len(names)


def test_every_folder_is_looked_at() -> None:
    """A new one is rendered and checked, or this fails."""
    found = {str(file.parent.relative_to(FOLDER)) for file in FOLDER.rglob("kustomization.yaml")}
    assert found == set(ALL)
    used = {FOLDER / folder / each for folder in ALL for each in named(FOLDER / folder / "kustomization.yaml")}  # fmt: skip
    files = {file for file in FOLDER.rglob("*") if file.is_file()} - {FOLDER / folder / "kustomization.yaml" for folder in ALL}  # fmt: skip
    assert files <= used


def named(file: Path) -> list[str]:
    """The files that a kustomization reads."""
    document = yaml.safe_load(file.read_text())
    patches = [each["path"] for each in document.get("patches", [])]
    generated = [name for each in document.get("configMapGenerator", []) for name in each["files"]]
    return [*document.get("resources", []), *patches, *generated]


def test_broken_folder_does_not_render(tmp_path: Path) -> None:
    """A file that is missing, and a patch of nothing."""
    copied(ROOT, tmp_path)
    (tmp_path / "deploy/kubernetes/fleet/service.yaml").unlink()
    with pytest.raises(RuntimeError, match=r"service\.yaml"):
        render(tmp_path, "fleet-evict")
    patch = tmp_path / "deploy/kubernetes/node-host-pid/host-pid.yaml"
    patch.write_text(patch.read_text().replace("name: vllm-watch", "name: another"))
    with pytest.raises(RuntimeError, match="another"):
        render(tmp_path, "node-host-pid")


@pytest.mark.parametrize("folder", SIDECARS)
def test_probes_beside_an_engine_are_those_that_were_tested(folder: str) -> None:
    """The command lines of docs/hooks/gate.md, word for word but for the target and the engine's port."""
    page = manifests.of_kind("gate.md", "Deployment")[0]["spec"]["template"]["spec"]
    tested, here = manifests.container(page, "vllm"), engine(folder)
    [target] = configuration(folder).targets
    for probe in ("livenessProbe", "readinessProbe"):
        expected = copy.deepcopy(tested[probe])
        command = [
            {"llama": target.name, "http://127.0.0.1:8000/health": f"{target.url}/health"}.get(each, each)
            for each in expected["exec"]["command"]
        ]  # fmt: skip
        assert here[probe]["exec"]["command"] == command
        assert "httpGet" not in here[probe]
        for key in ("timeoutSeconds", "failureThreshold"):
            assert here[probe][key] == expected[key]


@pytest.mark.parametrize("folder", SIDECARS)
def test_sidecar_takes_no_engine_along(folder: str) -> None:
    """It neither keeps an engine from starting once it runs, nor from serving, and asks for no rights."""
    container, spec = watcher(folder), pod_spec(folder)
    assert container["restartPolicy"] == "Always"
    assert container in spec["initContainers"]
    assert container.keys().isdisjoint({"startupProbe", "readinessProbe"})
    assert "serviceAccountName" not in spec
    assert {each["kind"] for each in rendered(folder)}.isdisjoint({"Role", "ClusterRole", "ServiceAccount"})  # fmt: skip
    multiprocess = [each for each in engine(folder).get("env", []) if each["name"] == "PROMETHEUS_MULTIPROC_DIR"]  # fmt: skip
    assert not (multiprocess and spec.get("shareProcessNamespace"))


@pytest.mark.parametrize("folder", WAYS)
def test_watcher_is_shut_tight(folder: str) -> None:
    """The restricted profile of Pod Security Standards, a read-only root, bounded memory and disk."""
    container, spec = watcher(folder), pod_spec(folder)
    secure = spec.get("securityContext", {}) | container["securityContext"]
    assert secure | {
        "runAsNonRoot": True, "runAsUser": 65532, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    } == secure  # fmt: skip
    assert "memory" in container["resources"]["limits"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    kinds = {next(key for key in each if key != "name"): each for each in spec["volumes"]}
    assert kinds.keys() <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected"}
    assert all(
        each["projected"]["defaultMode"] == 0o440 for each in spec["volumes"] if "projected" in each
    )
    assert all("sizeLimit" in each["emptyDir"] for each in spec["volumes"] if "emptyDir" in each)
    assert {"hostPID", "hostNetwork", "hostIPC"} & spec.keys() <= {"hostPID"}
    assert ("hostPID" in spec) == (folder == "node-host-pid")
    assert "65532:65532" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("folder", WAYS)
def test_watcher_is_started_as_it_is_configured(folder: str) -> None:
    """Its configuration is usable and mounted where it looks, its state is on a volume, its port is the one that is asked."""
    container, config = watcher(folder), configuration(folder)
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod_spec(folder)["volumes"]}
    assert container["args"] == ["run", "--config", "/etc/vllm-watch/vllm-watch.yaml"]
    assert volumes[mounts["/etc/vllm-watch"]]["configMap"]["name"].startswith(CONFIG)
    assert str(config.state_dir) in mounts
    [port] = container["ports"]
    assert config.listen_address == ("0.0.0.0", port["containerPort"])
    scheme = {"scheme": "HTTPS"} if config.web_config else {}
    assert (
        container["livenessProbe"]["httpGet"]
        == {"path": "/-/healthy", "port": port["name"]} | scheme
    )
    assert config.targets or config.discovery.any
    if config.restart.hook:
        assert config.restart.hook in config.hooks.by_name()
        assert config.restart.mode == "observe"


@pytest.mark.parametrize("folder", ["node", "node-host-pid"])
def test_daemonset_knows_its_node(folder: str) -> None:
    """The variable that its configuration names is the one that it is given."""
    [pods] = configuration(folder).discovery.kubernetes
    given = {each["name"]: each for each in watcher(folder)["env"]}
    assert given[pods.node_name.removeprefix("$")]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"  # fmt: skip
    assert pod_spec(folder)["runtimeClassName"] == "nvidia"
    [namespace] = of_kind(folder, "Namespace")
    level = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == ("privileged" if folder == "node-host-pid" else "restricted")


@pytest.mark.parametrize("folder", OF_ITS_OWN)
def test_policy_lets_through_what_is_needed(folder: str) -> None:
    """Prometheus in; names, the API server and the engines' port out."""
    [policy] = of_kind(folder, "NetworkPolicy")
    open_in = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    open_out = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    assert open_in == {watcher(folder)["ports"][0]["containerPort"]}
    [pods] = configuration(folder).discovery.kubernetes
    assert open_out == {53, 443, 6443, pods.port}


def test_monitors_leave_an_engines_labels_alone() -> None:
    """That each scrapes every watcher once, as the job that the alerts know, is what test_joins.py holds."""
    [service] = of_kind("monitors", "ServiceMonitor")
    [pods] = of_kind("monitors", "PodMonitor")
    [end] = pods["spec"]["podMetricsEndpoints"]
    assert end["relabelings"] == [{"targetLabel": "job", "replacement": "vllm-watch"}]
    for each in [end, *service["spec"]["endpoints"]]:
        # What a series says of job and instance is dropped: they are Prometheus' own.
        assert "honorLabels" not in each
        assert [rule["action"] for rule in each["metricRelabelings"]] == ["labelmap", "labeldrop"]
        assert not re.fullmatch(each["metricRelabelings"][0]["regex"], "exported_job")
    # In their own namespace, so that nobody else's pod is taken for a watcher.
    assert all("namespaceSelector" not in each["spec"] for each in (service, pods))


@pytest.mark.parametrize("folder", SIDECARS)
def test_policy_beside_an_engine_shuts_the_watchers_port_alone(folder: str) -> None:
    [policy] = of_kind(folder, "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    mine, others = policy["spec"]["ingress"]
    assert mine["from"]
    assert [each["port"] for each in mine["ports"]] == [9470]
    open_to_all = {
        port for each in others["ports"] for port in range(each["port"], each["endPort"] + 1)
    }
    assert open_to_all == set(range(1, 65536)) - {9470}


def test_only_who_is_to_see_gpus_is_given_them() -> None:
    """The image says `all`, which NVIDIA's runtime would take for a request; a node's watcher stays on a full node."""
    env = {each["name"]: each.get("value") for each in watcher("fleet")["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
    [priority] = of_kind("node", "PriorityClass")
    assert pod_spec("node")["priorityClassName"] == priority["metadata"]["name"]
    assert "namespace" not in priority["metadata"]


def test_no_image_is_the_latest() -> None:
    assert all("@sha256:" in watcher(folder)["image"] for folder in WAYS)
    text = (ROOT / "deploy/gate/http.yaml").read_text()
    for image in re.findall(r"image: (\S+)", text):
        assert re.search(r"@sha256:|:v\d", image), image


@pytest.mark.podman  # it needs root, for files that are root's
async def test_files_of_the_secret_serve_with_the_modes_that_they_get() -> None:
    """As the pod's user and group, over files of root that the group may read; one that everybody may read is no token."""
    with TemporaryDirectory() as made:  # pytest's own is for root alone
        folder = Path(made)
        folder.chmod(0o755)
        secret, state = folder / "secret", folder / "state"
        secret.mkdir()
        state.mkdir()
        os.chown(state, 65532, 65532)
        certificate(secret)
        [web] = [
            each for each in of_kind("fleet-secure", "ConfigMap") if "web.yaml" in each["data"]
        ]
        (secret / "web.yaml").write_text(web["data"]["web.yaml"])
        (secret / "token").write_text("0123456789abcdef0123456789abcdef\n")
        for file in secret.iterdir():
            os.chown(file, 0, 65532)
            file.chmod(0o440)
        [found] = [
            each
            for each in of_kind("fleet-secure", "ConfigMap")
            if "vllm-watch.yaml" in each["data"]
        ]
        text = found["data"]["vllm-watch.yaml"].replace("/etc/vllm-watch-secret", str(secret))
        text = text.replace("/var/lib/vllm-watch", str(state)).replace(
            "0.0.0.0:9470", "127.0.0.1:0"
        )
        config = folder / "config.yaml"
        config.write_text(
            re.sub(
                r"discovery:\n.*?(?=gpu:)",
                "targets: [{url: http://127.0.0.1:9}]\n",
                text,
                flags=re.DOTALL,
            )
        )
        # The system's Python: an environment's may lie in root's home.
        path = {"PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])}
        async with daemon(
            "--config", config, environ=path, python="/usr/bin/python3", user=65532, group=65532, extra_groups=[]
        ) as process:  # fmt: skip
            assert process.url.startswith("https:"), process.lines
            said = await reload(process.url)
            assert said == 200, process.lines
            (secret / "token").chmod(0o444)
            os.utime(secret / "token")
            assert await reload(process.url) == 401


def certificate(folder: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", "tls.key", "-out", "tls.crt"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


async def reload(url: str) -> int:
    """What the daemon says to the token's owner."""
    headers = {"Authorization": "Bearer 0123456789abcdef0123456789abcdef"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.post(f"{url}/-/reload", headers=headers) as answer,
    ):
        return answer.status if answer.status in (200, 401) else await answer.text()


def test_every_dashboard_is_a_config_map() -> None:
    """As it lies in dashboards/, under the label that Grafana's sidecar looks for; small enough to be applied."""
    found = of_kind("monitoring", "ConfigMap")
    shown = {name: text for each in found for name, text in each["data"].items()}
    assert shown == {file.name: file.read_text() for file in (ROOT / "dashboards").glob("*.json")}
    assert all(each["metadata"]["labels"] == {"grafana_dashboard": "1"} for each in found)
    assert all(len(json.dumps(each)) < 256 << 10 for each in found)


def test_lock_of_the_role_is_the_lock_of_the_program() -> None:
    """kustomize renames what it generates wherever it finds the name, in a Role too: so nothing has the lock's name."""
    lock = LockSettings.model_fields["name"].default
    for folder in ("rights/lease", "fleet-evict"):
        rules = [rule for role in of_kind(folder, "Role") for rule in role["rules"]]
        assert [each["resourceNames"] for each in rules if "resourceNames" in each] == [[lock]]


PATCHED = {
    "an engine": ("sidecar", "engine.yaml", []),
    "the production-stack's": ("sidecar-production-stack", "deployment.yaml", []),
    "KServe's": ("sidecar-kserve", "inference-service.yaml", ["--type=merge"]),
}


@pytest.mark.parametrize(("folder", "file", "arguments"), PATCHED.values(), ids=PATCHED)
def test_patch_alone_does_the_same(folder: str, file: str, arguments: list[str]) -> None:
    """kubectl patch, as docs/kubernetes.md says, makes of an engine what the folder makes."""
    patch = json.dumps(yaml.safe_load((FOLDER / folder / "patch.yaml").read_text()))
    document = FOLDER / folder / file
    said = run("kubectl", "patch", "--local", "-f", str(document), "-p", patch, "-o", "json", *arguments)  # fmt: skip
    [made] = of_kind(folder, "Deployment", "InferenceService")
    found = json.loads(said)
    assert without_defaults(found["spec"]) == without_defaults(made["spec"])


def without_defaults(spec: Any) -> Any:
    """kubectl shows empty objects where nothing is said."""
    if isinstance(spec, dict):
        kept = {key: without_defaults(each) for key, each in spec.items()}
        return {key: each for key, each in kept.items() if each not in (None, {}, [])}
    return [without_defaults(each) for each in spec] if isinstance(spec, list) else spec
