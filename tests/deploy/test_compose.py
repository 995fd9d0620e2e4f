"""deploy/compose.yaml: what it starts works together, and is shut as tight as its comments say.

No container runs here: the services are started as processes, with their commands, files, names and ports
(stack.py). Grafana can not be had; its provisioning is compared with what its documentation names.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.deploy.alone import alone
from tests.deploy.stack import FOLDER, Service, environment, services
from vllm_watch import __version__

STACK_SECONDS_MAX = 400
DEMO, GPU = services("demo"), services("gpu")
ALL = DEMO | GPU
# It runs as root in its own image, and writes where it likes.
FOREIGN = {"vllm"}
OURS = sorted(ALL.keys() - FOREIGN)
PROVISIONING = FOLDER / "grafana/provisioning"
# Source: Grafana's documentation, "Provision Grafana", and its prometheus data source's page.
DATASOURCE_KEYS = {
    "name", "type", "access", "orgId", "uid", "url", "user", "database", "basicAuth", "basicAuthUser",
    "withCredentials", "isDefault", "jsonData", "secureJsonData", "version", "editable",
}  # fmt: skip
PROMETHEUS_KEYS = {
    "httpMethod", "manageAlerts", "alertmanagerUid", "prometheusType", "prometheusVersion", "cacheLevel",
    "timeInterval", "queryTimeout", "incrementalQuerying", "disableMetricsLookup", "exemplarTraceIdDestinations",
    "defaultEditor",
}  # fmt: skip
PROVIDER_KEYS = {
    "name", "orgId", "folder", "folderUid", "type", "disableDeletion", "updateIntervalSeconds",
    "allowUiUpdates", "options",
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the stack showed, from its start until a page has arrived."""
    folder = tmp_path_factory.mktemp("stack")
    found: dict[str, Any] = alone(ROOT, "tests.deploy.stack", folder, seconds=STACK_SECONDS_MAX)
    for what in ("healthy", "incident", "alert", "page"):
        print(f"{what} after {found[f'{what}_seconds']:.0f} s")
    return found


def test_every_service_is_well_by_its_own_check(seen: dict[str, Any]) -> None:
    """All that the demo starts, but Grafana, becomes healthy and ends on SIGTERM."""
    assert seen["services"] == sorted(DEMO.keys() - {"grafana"})
    assert {name: seen["ended"][name] for name in ("demo", "prometheus", "alertmanager")} == {
        "demo": 0, "prometheus": 0, "alertmanager": 0,
    }  # fmt: skip


def test_the_fault_reaches_page_alert_and_pager(seen: dict[str, Any]) -> None:
    """What goes wrong in the demo is on the page, in Alertmanager, and in what the pager prints."""
    assert "<title>vllm-watch</title>" in seen["page"]
    assert seen["incident"]
    assert "VllmEngineStalled" in seen["alerts"]
    assert seen["pager"][0].startswith("PAGE firing: batch engine 0 is stalled")


def test_the_commands_of_the_docs_show_it(seen: dict[str, Any]) -> None:
    """docs/install/compose.md: what it asks of the running services."""
    assert len(seen["docs"]) == 2


def test_every_query_of_every_dashboard_is_taken(seen: dict[str, Any]) -> None:
    """Asked of the address that Grafana is given, none is refused."""
    assert {board for board, wrong in seen["refused"].items() if wrong} == set()
    assert seen["queries"].keys() == {file.name for file in (ROOT / "dashboards").glob("*.json")}
    assert all(count > 3 for count in seen["queries"].values()), seen["queries"]


def test_all_rules_are_loaded_and_evaluated(seen: dict[str, Any]) -> None:
    """Every rule of alerts/, and none fails."""
    files = [yaml.safe_load(file.read_text()) for file in (ROOT / "alerts").glob("*.yaml")]
    assert seen["rules"] == sum(len(g["rules"]) for file in files for g in file["groups"])
    assert seen["unhealthy_rules"] == []


@pytest.mark.parametrize("name", OURS)
def test_service_gives_an_attacker_nothing(name: str) -> None:
    """Not root, nothing writable, no capability, no way to more rights, bounded in memory, processes and logs."""
    raw = ALL[name].raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert int(raw["user"].partition(":")[0]) > 0
    assert {"mem_limit", "cpus", "pids_limit"} <= raw.keys()
    assert {"max-size", "max-file"} <= raw["logging"]["options"].keys()


@pytest.mark.parametrize("service", ALL.values(), ids=ALL)
def test_service_is_pinned_and_only_on_loopback(service: Service) -> None:
    """A tag that says a version; a port that no other host reaches; its files are there."""
    _, _, tag = service.image.rpartition(":")
    assert tag[:1] in {"v", *"0123456789"}, service.image
    assert all(port.startswith("127.0.0.1:") for port in service.raw.get("ports", ()))
    for mount in service.mounts:
        assert mount.named or Path(mount.source).exists(), mount


def test_our_image_has_this_version() -> None:
    """Who builds anew gets another name for it."""
    ours = [service for service in ALL.values() if service.image.startswith("vllm-watch")]
    assert {service.image for service in ours} == {f"vllm-watch:{__version__}"}
    # One that does not say how it is built would be looked for in a registry.
    assert all(service.raw["build"] == {"context": ".."} for service in ours)


@pytest.mark.parametrize("profile", ["demo", "gpu"])
def test_each_profile_has_one_watcher(profile: str) -> None:
    """Prometheus finds it under one name, whichever it is; the demo is what starts by default."""
    found = [name for name, each in services(profile).items() if "vllm-watch" in each.names]
    assert found == [{"demo": "demo", "gpu": "watcher"}[profile]]
    assert environment()["COMPOSE_PROFILES"] == "demo"
    scrape = yaml.safe_load((FOLDER / "compose/prometheus.yaml").read_text())["scrape_configs"]
    assert [job["static_configs"][0]["targets"] for job in scrape] == [["vllm-watch:9470"]]


def test_prometheus_is_set_up_as_the_example() -> None:
    """But for the addresses that compose gives, and where the rules lie."""
    ours = (FOLDER / "compose/prometheus.yaml").read_text()
    for here, there in {
        "vllm-watch:9470": "127.0.0.1:9470", "alertmanager:9093": "127.0.0.1:9093", "- alerts/": "- ../alerts/",
    }.items():  # fmt: skip
        assert here in ours
        ours = ours.replace(here, there)
    example = (FOLDER / "prometheus.yaml").read_text()
    assert yaml.safe_load(ours) == yaml.safe_load(example)


def test_the_watchers_configuration_is_one() -> None:
    """check-config takes what profile gpu mounts."""
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "check-config", FOLDER / "compose/vllm-watch.yaml"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def provisioned(kind: str, key: str) -> list[dict[str, Any]]:
    (file,) = (PROVISIONING / kind).glob("*.yaml")
    data = yaml.safe_load(file.read_text())
    assert data.keys() == {"apiVersion", key}
    assert data["apiVersion"] == 1
    found: list[dict[str, Any]] = data[key]
    return found


def test_grafana_gets_its_data_source() -> None:
    """By documented keys, at the name of a service and its port, as the default that dashboards take."""
    (source,) = provisioned("datasources", "datasources")
    assert source.keys() <= DATASOURCE_KEYS
    assert source["jsonData"].keys() <= PROMETHEUS_KEYS
    assert (source["type"], source["access"], source["isDefault"]) == ("prometheus", "proxy", True)
    assert source["url"] == "http://prometheus:9090"
    scrape = yaml.safe_load((FOLDER / "compose/prometheus.yaml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scrape["scrape_interval"]


def test_grafana_gets_every_dashboard() -> None:
    """By documented keys, from where compose mounts them; its first page is one of them."""
    (provider,) = provisioned("dashboards", "providers")
    assert provider.keys() <= PROVIDER_KEYS
    mounts = {mount.target: mount.source for mount in ALL["grafana"].mounts}
    folder = Path(mounts[provider["options"]["path"]])
    assert mounts["/etc/grafana/provisioning"] == str(PROVISIONING)
    assert list(folder.glob("*.json"))
    home = Path(ALL["grafana"].raw["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (folder / home.name).exists()
    for board in folder.glob("*.json"):
        variables = json.loads(board.read_text())["templating"]["list"]
        kinds = {each["query"] for each in variables if each["type"] == "datasource"}
        assert kinds == {"prometheus"}, board.name
