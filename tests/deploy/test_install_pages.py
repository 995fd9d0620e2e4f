"""docs/install/*.md: short, and up to a test alert that arrives. No Docker and no cluster is here: what they would
run in the container is run as a process, with the page's own configuration.

docs/install/bare-metal.md is followed as it stands by test_systemd_install.py.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from tests.daemon_process import ROOT
from tests.deploy import rendered
from tests.deploy.blocks import blocks
from tests.deploy.test_kubernetes import check
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
        [sys.executable, "-m", "vllm_watch", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed.readline() == f"{ARRIVED}\n"


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.md")))
def test_a_page_is_short_and_ends_in_an_alert(name: str) -> None:
    """At most so many lines; the last thing that is run sends the test alert."""
    text = (FOLDER / name).read_text()
    assert text.count("\n") <= LINES_MAX
    assert "notify test oncall" in blocks(FOLDER / name)[-1].text
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


def test_the_page_of_kubernetes(pager: tuple[str, IO[str]], tmp_path: Path) -> None:
    """What it has written renders to what Kubernetes takes, with the configuration that it shows."""
    found = page("kubernetes.md")
    rendered.copied(ROOT, tmp_path / "vllm-watch")
    (tmp_path / "watch").mkdir()
    for how, (text, *_) in found.items():
        if how.startswith("write "):
            (tmp_path / "vllm-watch" / how.removeprefix("write ")).resolve().write_text(text)
    if rendered.minor_version() < rendered.TODAYS_LANGUAGE:
        for file in tmp_path.rglob("kustomization.yaml"):
            file.write_text(yaml.safe_dump(rendered.in_its_first_language(file)))
    said = rendered.run("kubectl", "kustomize", str(tmp_path / "watch"))
    things = {each["kind"]: each for each in yaml.safe_load_all(said)}
    for each in things.values():
        check(each)
        assert each["metadata"]["namespace"] == "llm"
    [pushed] = re.findall(r"docker push (\S+):", found["docker"][0])
    [container] = things["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{pushed}@sha256:")
    config = yaml.safe_load(things["ConfigMap"]["data"]["config.yaml"])
    assert Config.model_validate(config).discovery.any
    lines = "\n".join(found["kubectl"]).splitlines()
    assert "kubectl apply -k ../watch" in lines
    [told] = [line for line in lines if " exec " in line]
    before, _, command = told.partition(" -- ")
    assert before == "kubectl -n llm exec deployment/vllm-watch"
    assert container["args"][-1] in command
    arrives(command, config, pager, tmp_path)
