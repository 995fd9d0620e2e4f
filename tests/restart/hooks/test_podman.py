"""The docker hook and the search for a server, against real containers: Podman serves Docker's Engine API.

Needs root, podman, runc and gcc, and pulls nothing: the image is one program. CI runs it (`-m podman`), in one
process: two Podmans at once disturb each other's containers.
"""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.restart.hooks.calls import CALL, alive, call, started, until
from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, docker, server_process, supervisor
from vllm_watch.settings.hooks import DockerHook

pytestmark = pytest.mark.podman
PORT = 20_000 + os.getpid() % 10_000  # two runs at once are two ports: what fits twice is refused
# A vLLM as far as /proc shows: named vllm, run with "serve", listening, ending at SIGTERM.
PROGRAM = """
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>
static void end(int number) { _exit(0); }
int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    signal(SIGTERM, end);
    bind(listening, (struct sockaddr *)&address, sizeof address);
    listen(listening, 8);
    for (;;) pause();
}
"""
CONTAINERS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{0}/tmp"
"""
STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'


class Podman:
    """A Podman with a store of its own, and its service's socket."""

    def __init__(self, folder):
        self.socket = folder / "api.sock"
        (folder / "containers.conf").write_text(CONTAINERS.format(folder))
        (folder / "storage.conf").write_text(STORAGE.format(folder))
        self.environ = os.environ | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }

    def __call__(self, *words, stdin=None):
        done = subprocess.run(
            ["podman", "--log-level", "fatal", *words],
            env=self.environ, stdin=stdin, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def serve(self):
        argv = f"podman --log-level fatal system service --time 0 unix://{self.socket}".split()
        process = subprocess.Popen(argv, env=self.environ, stderr=subprocess.DEVNULL)
        assert until(self.socket.exists)
        return process

    def pid(self):
        return int(self("inspect", "--format", "{{.State.Pid}}", "vllm"))


@pytest.fixture(scope="module")
def podman(tmp_path_factory):
    folder = tmp_path_factory.mktemp("podman")
    podman = Podman(folder)
    (folder / "vllm.c").write_text(PROGRAM)
    subprocess.run(
        ["gcc", "-static", f"-DPORT={PORT}", "-o", folder / "vllm", folder / "vllm.c"],
        check=True,
        timeout=60,
    )
    archive = shutil.make_archive(str(folder / "image"), "tar", folder, "vllm")
    podman("import", "--quiet", archive, "localhost/posing:1")
    service = podman.serve()
    yield podman
    podman("rm", "--all", "--force", "--time", "1")
    service.terminate()
    service.wait(20)
    for mount in re.findall(
        rf"^\S+ ({folder}\S*) ", Path("/proc/mounts").read_text(), re.MULTILINE
    ):
        subprocess.run(["umount", mount], timeout=600, check=False)


@pytest.fixture
def container(podman):
    """A running container, restarted whatever its status."""
    words = (
        "run --detach --name vllm --restart always --network none localhost/posing:1 /vllm serve m"
    )
    podman(*words.split())
    yield podman
    podman("rm", "--force", "--time", "1", "vllm")


def hook(podman):
    settings = DockerHook(name="a", container="vllm", socket=podman.socket, stop_seconds=5.0)
    return docker.Hook(settings, base.Tools())


async def test_container_is_restarted(container):
    """The daemon restarts it: the server's process is another one, and the old one is refused from then on."""
    before = container.pid()
    told = call(process_start_time=started(before))
    assert [finding.ok for finding in await hook(container).rehearse(told)] == [True, True]
    await asyncio.sleep(4)  # so that the two starts can be told apart
    result = await hook(container).restart(told)
    assert result.outcome == "done", result.text
    assert container.pid() != before
    assert not alive(before)
    assert "was started after the observed server" in await hook(container).refusal(told)


async def test_container_that_was_stopped_is_left_alone(container):
    await asyncio.to_thread(container, "stop", "--time", "5", "vllm")
    assert "does not run" in await hook(container).refusal(CALL)
    assert (await hook(container).restart(CALL)).outcome == "refused"


async def test_container_that_is_gone_is_told(podman):
    """Podman's own 404 is understood."""
    assert "answered for vllm: 404 no container with name or ID" in await hook(podman).refusal(CALL)
    status, _ = await docker.request_restart(base.Tools(), podman.socket, "vllm", 1, 10)
    assert status == 404


async def test_server_in_a_container_is_found_and_its_supervisor_seen(container):
    """From the host, in its own network and PID namespace: by port and start; its policy through the API."""
    pid = container.pid()
    told = call(url=f"http://127.0.0.1:{PORT}", process_start_time=started(pid))
    found = await server_process.find(base.Tools(), told)
    assert found.facts.pid == pid
    seen = await supervisor.of(base.Tools(environ={}), found, (container.socket,))
    assert (seen.relaunches, seen.text) == (True, "container vllm has restart policy always")


async def test_server_in_a_container_of_unknown_start_is_not_taken(container):
    """The port of our own network is another one's: without the start nothing shows that it is this server."""
    told = call(url=f"http://127.0.0.1:{PORT}", process_start_time=None)
    with pytest.raises(HookError, match="no vLLM server was found"):
        await server_process.find(base.Tools(), told)
