"""What a start loads: a sidecar starts often, and looks at its engine before it loads what can wait."""

import os
import subprocess
import sys

import pytest

PATIENCE_SECONDS = 120.0

# What must not be loaded before the first request → where it belongs.
LATER = {
    "aiohttp": "engines are asked through sources/http.py; the server is loaded after the first look",
    "prometheus_client": "what /metrics needs comes with the server",
    "bcrypt": "passwords come with the server",
    "vllm_watch.export.server": "export/door.py loads it after the first look",
    "vllm_watch.export.status": "what is served comes with the server",
    "vllm_watch.export.text": "what is served comes with the server",
    "rich": "structlog takes it along where it is installed: loading.load_structlog",
    "pygments": "rich brings it",
    "greenlet": "structlog takes it along where it is installed: loading.load_structlog",
    "yaml": "there is no file: config.load reads YAML where one is named",
    "apscheduler": "restarts alone have a schedule: daemon.py",
    "vllm_watch.restart.restarts": "daemon.py loads it where restarts are asked for",
    "vllm_watch.restart.config_changes": "a reload loads it",
    "vllm_watch.state.journal": "there is no state folder to keep a journal in",
    "vllm_watch.watch.canary_rounds": "no canary is switched on",
    "vllm_watch.sources.canary": "no canary is switched on",
    "vllm_watch.advice.rules": "nobody waits for advice: advice/adviser.py loads them after the first look",
    "vllm_watch.state.worker": "daemon.py loads it where a state folder is named",
    "sqlite3": "vllm_watch.state.worker brings it",
    "vllm_watch.notify.notifications": "notify/switch.py loads it where a notifier is named",
    "vllm_watch.clients.kubernetes": "discovery.kubernetes alone needs it: sources/targets.py",
    "vllm_watch.sources.discovery_files": "discovery.file_sd alone needs it: sources/targets.py",
    "vllm_watch.sources.engine_log": "no log is named",
    "vllm_watch.diagnosis": "logs alone are diagnosed, and none is named",
    "vllm_watch.capacity": "a command of its own",
    "vllm_watch.preflight": "a command of its own",
    "vllm_watch.lab": "the demo's",
    "pynvml": "it is loaded in NVML's own thread, where there is a driver",
    "textual": "the terminal view's",
    "numpy": "nothing of ours needs it",
}

# An engine in a thread of the same process, so that what is loaded can be seen the moment it is asked.
ASKED = """
import os, socket, sys, threading
from vllm_watch.__main__ import main
from vllm_watch.export import door

door.LOOKS_FIRST_SECONDS = 3600.0  # however slow the machine: only the order counts here
engine = socket.create_server(("127.0.0.1", 0))

def asked():
    engine.accept()
    print(*sorted(sys.modules), sep="\\n", flush=True)
    os._exit(0)

threading.Thread(target=asked, daemon=True).start()
url = f"http://127.0.0.1:{engine.getsockname()[1]}"
sys.exit(main(["run", "--target", f"one={url}", "--listen", "127.0.0.1:0"]))
"""


def python(code):
    """What a Python of its own prints, without any setting of ours around it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS, env=environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def at_the_first_request():
    """The names of the modules that `vllm-watch run` has loaded when it first asks its engine."""
    return python(ASKED).split()


@pytest.mark.parametrize("later", LATER)
def test_what_can_wait_is_not_loaded_before_the_first_request(at_the_first_request, later):
    """The engine is asked first; a module that is not needed for that is loaded later, or never."""
    found = [name for name in at_the_first_request if name == later or name.startswith(f"{later}.")]
    assert not found, f"{LATER[later]}; python -X importtime -m vllm_watch run shows who loads it"


def test_what_judges_is_there_at_the_first_request(at_the_first_request):
    """The list above means something: the detectors that the first look needs are loaded by then."""
    assert {"vllm_watch.detectors.engine_down", "vllm_watch.watch.watch"} <= set(
        at_the_first_request
    )


def test_all_that_is_asked_for_later_can_be_loaded():
    """The names above are modules that exist, where they are ours; a renamed one would be checked no more."""
    ours = [name for name in LATER if name.startswith("vllm_watch")]
    python(f"import importlib\nfor name in {ours}: importlib.import_module(name)")


def test_structlog_comes_without_rich_and_leaves_it_usable():
    """What structlog would take along is not loaded with it, and can be loaded afterwards."""
    said = python(
        "import sys\n"
        "from vllm_watch.support.loading import load_structlog\n"
        "load_structlog()\n"
        "print('structlog' in sys.modules, any(name.split('.')[0] == 'rich' for name in sys.modules))\n"
        "import rich.text\n"
        "print(rich.text.Text('a'))\n"
    )
    assert said.split() == ["True", "False", "a"]


def test_rich_that_was_loaded_stays():
    """Whoever has loaded rich before goes on with the same module."""
    said = python(
        "import rich\n"
        "from vllm_watch.support.loading import load_structlog\n"
        "load_structlog()\n"
        "import sys, structlog.dev\n"
        "print(sys.modules['rich'] is rich, structlog.dev.rich is rich)\n"
    )
    assert said.split() == ["True", "True"]


@pytest.mark.parametrize(("before", "after"), [("enable", "True"), ("disable", "False")])
def test_garbage_is_collected_again_after_loading(before, after):
    """Loading is done without the collector, which is afterwards as it was, also where loading fails."""
    said = python(
        "import gc\n"
        f"gc.{before}()\n"
        "from vllm_watch.support.loading import uncollected\n"
        "try:\n"
        "    with uncollected():\n"
        "        print(gc.isenabled())\n"
        "        import no_such_module\n"
        "except ModuleNotFoundError:\n"
        "    print(gc.isenabled())\n"
    )
    assert said.split() == ["False", after]


def test_garbage_is_looked_for_rarely_and_still_is():
    """The looks of a moment hold more than Python's 700 new objects, and leave hardly any."""
    said = python(
        "import gc\n"
        "from vllm_watch.cli import run\n"
        "run.load_watcher()\n"
        "collections = lambda: sum(each['collections'] for each in gc.get_stats())\n"
        "before = collections()\n"
        "kept = [[] for _ in range(15_000)]\n"
        "print(collections() - before)\n"
        "kept += [[] for _ in range(15_000)]\n"
        "print(collections() - before)\n"
    )
    assert said.split() == ["0", "1"]
