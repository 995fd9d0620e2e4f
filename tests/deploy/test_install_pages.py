"""docs/install/*.md: short, and up to an alert that arrives. No Docker and no cluster is here: what they would
run in the container is run as a process, with the page's own configuration.

docs/install/bare-metal.md is followed as it stands by test_followed.py, the stack of compose.md by test_compose.py.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from tests.alerts.programs import running
from tests.daemon_process import ROOT
from tests.deploy.joins import PROMETHEUS
from tests.deploy.reader import blocks
from tests.deploy.stack import ALERTMANAGER, environment, services
from tests.deploy.test_helm import right, template
from tests.ports import free_port
from vllm_watch.config import Config

FOLDER = ROOT / "docs/install"
LINES_MAX = 70
IN_THE_CONTAINER = "/opt/vllm-watch/bin/vllm-watch"
ARRIVED = "PAGE test: INFO test: vllm-watch: test (test)"


@pytest.fixture
def pager() -> Iterator[tuple[str, IO[str]]]:
    """The stand-in of the pages on a free port: its address, and what it prints."""
    code = (
        "import pager; from http.server import HTTPServer\n"
        "server = HTTPServer(('127.0.0.1', 0), pager.Pager)\n"
        "print(server.server_port, flush=True); server.serve_forever()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT / "deploy/compose", stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/page", process.stdout
        finally:
            process.kill()


def page(name: str) -> dict[str, list[str]]:
    """The texts of a page's blocks, by how they are run."""
    found: dict[str, list[str]] = {}
    for block in blocks(FOLDER / name):
        found.setdefault(block.how, []).append(block.text)
    return found


def arrives(command: str, config: dict[str, Any], pager: tuple[str, IO[str]], folder: Path) -> None:
    """Run what is run in the container, with this configuration and our pager in place of its receiver."""
    url, printed = pager
    [notifier] = config["notifications"]["webhook"]
    notifier["url"] = url
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    program, *arguments = shlex.split(command)
    assert program == IN_THE_CONTAINER
    assert f'ENTRYPOINT ["{program}"]' in (ROOT / "Dockerfile").read_text()
    arguments[arguments.index("--config") + 1] = str(file)
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed.readline() == f"{ARRIVED}\n"


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.md")))
def test_a_page_is_short_and_ends_in_an_alert(name: str) -> None:
    """At most so many lines; the last thing that is run sends the test alert, or shows the first real one."""
    text = (FOLDER / name).read_text()
    assert text.count("\n") <= LINES_MAX
    assert re.search(
        r"notify test oncall|amtool alert add|logs pager", blocks(FOLDER / name)[-1].text
    )
    assert {block.how for block in blocks(FOLDER / name)} != {""}
    assert f"(install/{name})" in (ROOT / "docs/install.md").read_text()


def test_the_page_of_docker(pager: tuple[str, IO[str]], tmp_path: Path) -> None:
    """The container finds its configuration where it is mounted, and its state is on the volume."""
    found = page("docker.md")
    config = yaml.safe_load((ROOT / "deploy/systemd/vllm-watch.yaml").read_text())
    [added] = found["add to vllm-watch.yaml"]
    config |= yaml.safe_load(added)
    lines = "\n".join(found["docker"]).replace("\\\n", " ").splitlines()
    [run] = [shlex.split(line) for line in lines if line.startswith("docker run -d")]
    mounts = [run[at + 1].split(":") for at, word in enumerate(run) if word == "-v"]
    inside = {mount[1]: mount[0] for mount in mounts}
    assert run[run.index("vllm-watch", run.index("-v")) :] == ["vllm-watch", "run", "--config", "/etc/vllm-watch/vllm-watch.yaml"]  # fmt: skip
    assert inside["/etc/vllm-watch/vllm-watch.yaml"] == "$PWD/vllm-watch.yaml"
    assert "cp deploy/systemd/vllm-watch.yaml vllm-watch.yaml" in lines
    assert inside[str(Config.model_validate(config).state_dir)] == "vllm-watch"
    container = run[run.index("--name") + 1]
    [told] = [line for line in lines if line.startswith("docker exec")]
    arrives(told.removeprefix(f"docker exec {container} "), config, pager, tmp_path)


COMMANDS = {"up", "down", "ps", "logs"}


@pytest.mark.parametrize("text", page("compose.md")["docker"], ids=lambda text: text.split("\n")[0])
def test_the_page_of_compose_names_what_there_is(text: str) -> None:
    """The folder, the profile and the services that its commands name exist."""
    for line in text.splitlines():
        if line == "cd deploy":
            assert (ROOT / "deploy/compose.yaml").exists()
            continue
        found = re.fullmatch(r"(?:COMPOSE_PROFILES=([\w,]+) )?docker compose (\w+)(.*)", line)
        assert found, line
        profiles = (found[1] or environment()["COMPOSE_PROFILES"]).split(",")
        known = {name for profile in profiles for name in services(profile)}
        assert found[2] in COMMANDS
        named = {word for word in found[3].split() if not word.startswith("-")}
        assert named <= known, line


def words_of(lines: list[str], *begin: str) -> list[str]:
    """Of the only command that begins so."""
    [words] = [shlex.split(line) for line in lines if shlex.split(line)[: len(begin)] == [*begin]]
    return words[len(begin) :]


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def as_operator(spec: dict[str, Any], namespace: str, url: str) -> dict[str, Any]:
    """The configuration of Alertmanager that the Prometheus Operator makes of an AlertmanagerConfig."""

    def route(of: dict[str, Any], *more: str) -> dict[str, Any]:
        matchers = [f'{m["name"]}{m["matchType"]}"{m["value"]}"' for m in of.get("matchers", [])]
        return {
            "receiver": of["receiver"], "group_by": of["groupBy"], "group_wait": "1s", "group_interval": of["groupInterval"],
            "repeat_interval": of["repeatInterval"], "matchers": [*matchers, *more],
            "routes": [route(each) for each in of.get("routes", [])],
        }  # fmt: skip

    receivers = [{"name": each["name"], "webhook_configs": [{"url": f"{url}/{each['name']}"}]} for each in spec["receivers"]]  # fmt: skip
    top = {"receiver": "null", "routes": [route(spec["route"], f'namespace="{namespace}"')]}
    return {"route": top, "receivers": [{"name": "null"}, *receivers]}


async def test_the_page_of_kubernetes(
    run_helm: Callable[..., str], pager: tuple[str, IO[str]], tmp_path: Path
) -> None:
    """Its values render to what Kubernetes takes, in the namespaces and with the label that it names; a real Alertmanager
    routes its test alert to the page's receiver."""
    found = page("kubernetes.md")
    (values,) = (text for how, (text, *_) in found.items() if how.startswith("write "))
    (tmp_path / "values.yaml").write_text(values)
    lines = "\n".join(found["kubectl"]).splitlines()
    words = words_of(lines, "helm", "upgrade", "--install")
    assert words[:2] == ["vllm-watch", "deploy/helm/vllm-watch"]
    assert option(words, "--values") == "values.yaml"
    namespace = option(words, "-n")
    things = template(run_helm, "--values", tmp_path / "values.yaml", namespace=namespace)
    right(things, yaml.safe_load(values), namespace)
    text = (FOLDER / "kubernetes.md").read_text()
    [release] = re.findall(r"as the release `([\w-]+)` in the namespace\s+`monitoring`", text)
    assert PROMETHEUS == "monitoring"
    for each in things:
        if each["apiVersion"].startswith("monitoring.coreos.com/"):
            assert each["metadata"]["labels"]["release"] == release
    [workload] = [each for each in things if each["kind"] == "Deployment"]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    [pushed] = re.findall(r"docker push (\S+)", found["docker"][0])
    assert container["image"] == pushed
    secret = words_of(lines, "kubectl", "-n", namespace, "create", "secret", "generic")
    [spec] = [each["spec"] for each in things if each["kind"] == "AlertmanagerConfig"]
    for each in spec["receivers"]:
        [hook] = each["webhookConfigs"]
        assert hook["urlSecret"]["name"] == secret[0]
        assert any(word.startswith(f"--from-literal={hook['urlSecret']['key']}=") for word in secret)  # fmt: skip
    assert f"http://127.0.0.1:{Config().listen_address[1]}/" in text
    pod = f"alertmanager-{release}-alertmanager-0"
    sent = words_of(lines, "kubectl", "-n", PROMETHEUS, "exec", pod, "-c", "alertmanager", "--", "amtool")  # fmt: skip
    assert "VllmEngineDown" in sent
    url, printed = pager
    config = as_operator(spec, namespace, url.removesuffix("/page"))
    file, address = tmp_path / "alertmanager.yml", f"http://127.0.0.1:{free_port()}"
    file.write_text(yaml.safe_dump(config))
    listen = f"--web.listen-address={address.removeprefix('http://')}"
    storage = (f"--storage.path={tmp_path / 'data'}", "--cluster.listen-address=")
    async with running(f"{address}/-/ready", ALERTMANAGER, f"--config.file={file}", listen, *storage):  # fmt: skip
        sent[-1] = f"--alertmanager.url={address}"
        subprocess.run(["amtool", *sent], check=True, timeout=600)
        assert printed.readline() == "PAGE firing: test\n"
