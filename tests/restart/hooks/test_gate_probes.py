"""The probes of docs/hooks/gate.md, word for word, against watchers that are killed and stopped.

A probe fails only on an explicit, fresh word about the server that it stands beside: the engine never pays
for a watcher that is away.
"""

import http.server
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.restart.hooks import manifests
from tests.restart.hooks.calls import started, until
from tests.restart.hooks.gate_watcher import Watcher
from vllm_watch.config import Config

LIVE, READY = "livenessProbe", "readinessProbe"
WAYS = ("curl", "python")
OK, FAILS = 0, 1
LIVED_SECONDS = 6.0
"""A start is known to some two seconds: boot and ticks are whole seconds to some."""
SHELLS = {"sh": ["sh"], "bash as sh": ["bash", "--posix"]}


def probes_of_the_page():
    """The command lines of the page, by way and probe, as a kubelet runs them."""
    deployment = manifests.of_kind("gate.md", "Deployment")[0]["spec"]["template"]["spec"]
    [python] = [each for each in manifests.documents("gate.md") if LIVE in each]
    engines = (manifests.container(deployment, "vllm"), python)
    return {
        way: {
            probe: manifests.as_kubernetes_runs_it(engine[probe]["exec"]["command"])
            for probe in (LIVE, READY)
        }
        for way, engine in zip(WAYS, engines, strict=True)
    }


PROBES = probes_of_the_page()


@pytest.fixture
def container():
    container = Container()
    yield container
    container.end()


@pytest.fixture
def health():
    with Answering({"/health": (200, b"")}) as health:
        yield health


class Site:
    """One engine's pod: its state, its watcher, its container, its health."""

    def __init__(self, way, tmp_path, health):
        self.way, self.health = way, health
        self.state = tmp_path / "state"
        self.port = 0

    def watcher(self):
        """Start it, at the same port as before."""
        watcher = Watcher(self.state, self.port)
        self.port = watcher.port
        return watcher

    def asked_by(self, container, probe=LIVE, shell=("sh",), before=()):
        """Run the probe as a kubelet does. Only addresses are put in place of the page's own."""
        place = {
            "http://127.0.0.1:9470": f"http://127.0.0.1:{self.port}",
            "http://127.0.0.1:8000/health": f"http://127.0.0.1:{self.health.port}/health",
        }
        [_, *rest] = [place.get(each, each) for each in PROBES[self.way][probe]]
        return FAILS if container.execute([*before, *shell, *rest]) else OK


@pytest.fixture(params=WAYS)
def site(request, tmp_path, health):
    return Site(request.param, tmp_path, health)


@contextmanager
def successor_of(container):
    """End it once it has lived longer than starts are compared by, and begin the next."""
    time.sleep(max(0.0, container.started + LIVED_SECONDS - time.time()))
    container.end()
    successor = Container()
    try:
        yield successor
    finally:
        successor.end()


@pytest.mark.parametrize("shell", SHELLS.values(), ids=SHELLS)
def test_engine_is_restarted_once_and_only_when_told(site, container, shell):
    """Silence is health; a kill of this server fails its probe, one of another's does not, nor the next one's."""
    with site.watcher() as watcher:
        assert site.asked_by(container, shell=shell) == OK
        watcher.say(f"kill {container.started - 100:.2f}")
        assert site.asked_by(container, shell=shell) == OK
        watcher.say("free")
    with site.watcher() as watcher:
        watcher.say(f"kill {container.started:.2f}")
        assert site.asked_by(container, shell=shell) == FAILS
        assert site.asked_by(container, READY, shell) == OK
        with successor_of(container) as successor:
            assert site.asked_by(successor, shell=shell) == OK


def test_watcher_that_is_killed_is_no_reason(site, container):
    """SIGKILL in the middle of a restart: nothing answers, and nothing is restarted."""
    with site.watcher() as watcher:
        watcher.say(f"kill {container.started:.2f}")
        watcher.say(f"drain {container.started:.2f}")
        assert site.asked_by(container) == FAILS
        assert site.asked_by(container, READY) == FAILS
    assert site.asked_by(container) == OK
    assert site.asked_by(container, READY) == OK


def test_watcher_that_is_stopped_is_no_reason(site, container):
    """SIGSTOP: the kernel still takes connections, and nobody answers them."""
    with site.watcher() as watcher:
        watcher.say(f"drain {container.started:.2f}")
        watcher.stop()
        assert site.asked_by(container) == OK
        assert site.asked_by(container, READY) == OK
        watcher.go_on()
        assert site.asked_by(container, READY) == FAILS


KILL = b"kill {start} {word}\n"
ANSWERS = {
    "the very words": (200, KILL, FAILS),
    "a word that was made up for another question": (200, b"kill {start} 1-2.0\n", OK),
    "no word at all": (200, b"kill {start}\n", OK),
    "an error": (500, KILL, OK),
    "elsewhere": (302, KILL, OK),
    "a server that started when none here did": (200, b"kill 1000000000 {word}\n", OK),
    "a start that is not a number": (200, b"kill x{start} {word}\n", OK),
    "a number without end": (200, b"kill " + b"9" * 400 + b" {word}\n", OK),
    "readiness' word": (200, b"no {start} {word}\n", OK),
    "a byte now and then, for ever": (200, None, OK),
}


@pytest.mark.parametrize(("status", "body", "probed"), ANSWERS.values(), ids=ANSWERS)
def test_only_the_gates_own_words_are_taken(site, container, status, body, probed):
    """Whatever answers at the watcher's port."""
    body = body and body.replace(b"{start}", b"%d" % container.started)
    with Answering({"/gate/liveness": (status, body)}) as strange:
        site.port = strange.port
        assert site.asked_by(container) == probed
        assert len(strange.asked) == 1  # a redirect is not followed, nothing is asked twice


def test_probe_without_its_tools_is_no_reason(site, container):
    """An image that lacks curl or python3: the probe knows nothing, so all is well."""
    with site.watcher() as watcher:
        watcher.say(f"kill {container.started:.2f}")
        without = ["env", "PATH=/nonexistent"]
        assert site.asked_by(container, shell=("/bin/sh",), before=without) == OK


def test_readiness_is_also_the_engines_own(site, container):
    """Without a watcher the engine is as ready as it says itself."""
    assert site.asked_by(container, READY) == OK
    site.health.answers["/health"] = (503, b"")
    assert site.asked_by(container, READY) == FAILS
    assert site.asked_by(container) == OK


def test_configuration_of_the_page_is_one():
    """The ConfigMap holds what vllm-watch takes, with the target that the probes name."""
    text = manifests.of_kind("gate.md", "ConfigMap")[0]["data"]["vllm-watch.yaml"]
    config = Config.model_validate(manifests.yaml.safe_load(text))
    assert config.hooks.by_name()["probe"][0] == "gate"
    assert config.restart_for(config.targets[0]).hook == "probe"
    assert PROBES["curl"][LIVE][-1] == config.targets[0].name


RUN_SECONDS = 60.0
"""On a machine that runs other tests at the same time; a probe itself takes milliseconds."""


class Container:
    """One process that poses as an engine, the first of its namespace as in a pod."""

    def __init__(self):
        self._outer = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "1000"]
        )
        assert until(lambda: self._first() is not None)
        self.pid = self._first()
        self.started = started(self.pid)

    def _first(self):
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text()
        for pid in children.split():
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                return int(pid)
        return None

    def execute(self, command):
        """Run it inside, as an exec probe is; return its exit status."""
        inside = ["nsenter", "--target", str(self.pid), "--pid", "--mount", *command]
        done = subprocess.run(inside, capture_output=True, timeout=RUN_SECONDS, check=False)
        return done.returncode

    def end(self):
        """The container ends."""
        self._outer.kill()  # --kill-child: its child goes with it
        self._outer.wait()


ENDLESS_SECONDS = 30.0


class Answering:
    """`answers` is (status, body) by path; `{word}` in a body becomes the word that was asked with."""

    def __init__(self, answers):
        self.answers = dict(answers)
        self.asked = []
        self._over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer._answer(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def _answer(self, request):
        self.asked.append(request.path)
        url = urlsplit(request.path)
        word = parse_qs(url.query).get("asked", [""])[0]
        status, body = self.answers.get(url.path, (404, b""))
        request.send_response(status)
        if status == 302:
            request.send_header("Location", request.path)
        request.end_headers()
        if body is not None:
            request.wfile.write(body.replace(b"{word}", word.encode()))
            return
        until = time.monotonic() + ENDLESS_SECONDS
        while time.monotonic() < until and not self._over.wait(0.2):
            try:
                request.wfile.write(b"k")
                request.wfile.flush()
            except OSError:
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
