"""Which processes an engine runs in; where it is not sure, none."""

import pytest

from vllm_watch.sources.engine_processes import arguments, find
from vllm_watch.sources.processes import ProcessFacts

STARTED = 1_700_000_000.0
SERVE = ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m")
SPAWNED = ("/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main")
TRACKER = ("/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main")


def process(pid, ppid, *cmdline, born=STARTED + 20.0, state="S"):
    return ProcessFacts(
        pid=pid, ppid=ppid, cmdline=cmdline, name=cmdline[0][:15], state=state,
        start_ticks=pid, create_time=born,
    )  # fmt: skip


INIT = process(1, 0, "/sbin/init", born=STARTED - 1e6)
SHELL = process(2, 1, "bash", born=STARTED - 100.0)
SERVER = process(10, 2, *SERVE, born=STARTED + 0.6)
CORE = process(20, 10, "VLLM::EngineCore")
WORKERS = (process(21, 20, "VLLM::Worker_TP0"), process(22, 20, "VLLM::Worker_TP1"))
RANKS = (process(20, 10, "VLLM::EngineCore_DP0"), process(30, 10, "VLLM::EngineCore_DP1"))
APIS = (process(40, 10, "VLLM::APIServer_0"), process(41, 10, "VLLM::DPCoordinator"))
OTHER = process(50, 2, *SERVE, "--port", "8001", born=STARTED + 300.0)
OTHER_CORE = process(51, 50, "VLLM::EngineCore", born=STARTED + 320.0)
PLAIN = (INIT, SHELL, SERVER, CORE)

STORIES = {
    # processes, when /metrics says that it started, engines → PIDs by engine
    "a core": (PLAIN, STARTED, ("0",), {"0": [20]}),
    "a core and its workers": ((*PLAIN, *WORKERS), STARTED, ("0",), {"0": [20, 21, 22]}),
    "an engine whose label is its rank elsewhere": (PLAIN, STARTED, ("3",), {"3": [20]}),
    "data-parallel ranks, beside API servers and a coordinator": (
        (INIT, SERVER, *RANKS, *APIS, process(31, 30, "VLLM::Worker_DP1_TP0")), STARTED, ("0", "1"),
        {"0": [20], "1": [30, 31]},
    ),
    "some of the ranks run on another host": (
        (INIT, SERVER, *RANKS), STARTED, ("0", "1", "2", "3"), {"0": [20], "1": [30]},
    ),
    "a rank that /metrics does not name": ((INIT, SERVER, *RANKS), STARTED, ("0", "5"), {}),
    "a core without a rank among several engines": (PLAIN, STARTED, ("0", "1"), {}),
    "another server here": ((*PLAIN, OTHER, OTHER_CORE), STARTED, ("0",), {"0": [20]}),
    "the other server": ((*PLAIN, OTHER, OTHER_CORE), STARTED + 300.0, ("0",), {"0": [51]}),
    "a server on another host, through a tunnel": (PLAIN, STARTED - 5000.0, ("0",), {}),
    "two that started in the same second": (
        (*PLAIN, process(60, 2, *SERVE, born=STARTED), process(61, 60, "VLLM::EngineCore")), STARTED,
        ("0",), {"0": [61]},
    ),
    "... of which neither did in the same tick, on two ports": (
        (*PLAIN, process(60, 2, *SERVE, "--port", "8001", born=STARTED - 0.4), process(61, 60, "VLLM::EngineCore")),
        STARTED, ("0",), {"0": [20]},
    ),
    "... on one port, in two containers": (
        (*PLAIN, process(60, 2, *SERVE, born=STARTED - 0.4), process(61, 60, "VLLM::EngineCore")), STARTED,
        ("0",), {},
    ),
    "a shell that names vllm and has started it": (
        (INIT, process(9, 1, "bash", "-c", "vllm serve m", born=STARTED), process(10, 9, *SERVE, born=STARTED), CORE),
        STARTED, ("0",), {"0": [20]},
    ),
    "... and has started two": (
        (INIT, process(9, 1, "bash", "-c", "vllm serve", born=STARTED), process(10, 9, *SERVE, born=STARTED), CORE,
         process(60, 9, *SERVE, born=STARTED), process(61, 60, "VLLM::EngineCore")),
        STARTED, ("0",), {},
    ),
    "a launcher that names vllm, and the rank beside that it has started, too": (
        (INIT, process(9, 1, "bash", "start-vllm.sh", born=STARTED), process(10, 9, *SERVE, born=STARTED),
         process(20, 10, "VLLM::EngineCore_DP0"), process(60, 9, *SERVE, "--port", "8001", born=STARTED + 0.2),
         process(61, 60, "VLLM::EngineCore_DP1")),
        STARTED, ("0",), {"0": [20]},
    ),
    "no title yet (before vLLM 0.10.2)": (
        (INIT, SERVER, process(20, 10, *SPAWNED), process(21, 10, *TRACKER)), STARTED, ("0",), {"0": [20]},
    ),
    "... and forked": ((INIT, SERVER, process(20, 10, *SERVE)), STARTED, ("0",), {"0": [20]}),
    "... of several engines": ((INIT, SERVER, process(20, 10, *SPAWNED)), STARTED, ("0", "1"), {}),
    "the engine runs in the server's own process": ((INIT, SERVER), STARTED, ("0",), {"0": [10]}),
    "a title with another prefix": (
        (INIT, SERVER, process(20, 10, "llama::EngineCore")), STARTED, ("0",), {"0": [20]},
    ),
    "the core has ended and was not reaped": (
        (INIT, SERVER, process(20, 10, "VLLM::EngineCore", state="Z"), process(23, 10, "VLLM::EngineCore")),
        STARTED, ("0",), {"0": [23]},
    ),
    "this watcher, and who reads its log, started with it": (
        (*PLAIN, process(80, 1, "vllm-watch", "run", born=STARTED), process(81, 1, "tail", "vllm.log", born=STARTED)),
        STARTED, ("0",), {"0": [20]},
    ),
    "this watcher, beside an engine without a process of its own": (
        (INIT, SERVER, process(80, 1, "python", "-m", "vllm_watch", born=STARTED)), STARTED, ("0",), {"0": [10]},
    ),
    "when is not told: by its port": ((*PLAIN, OTHER, OTHER_CORE), None, ("0",), {"0": [20]}),
    "... which two have": (
        (*PLAIN, process(60, 2, *SERVE), process(61, 60, "VLLM::EngineCore")), None, ("0",), {},
    ),
    "... which two have, one of them without a core": ((*PLAIN, process(60, 2, *SERVE)), None, ("0",), {}),
    "... which none has": ((INIT, OTHER, OTHER_CORE), None, ("0",), {}),
    "... and a shell that has started it": (
        (INIT, process(9, 1, "bash", "-c", "exec vllm serve m"), process(10, 9, *SERVE), CORE), None, ("0",), {"0": [20]},
    ),
    "... and a container's client, beside it": ((*PLAIN, process(9, 2, "docker", "run", "vllm", "serve")), None, ("0",), {"0": [20]}),
    "another program that names vllm": (
        (INIT, process(10, 1, "tail", "-f", "vllm.log", born=STARTED), CORE), None, ("0",), {},
    ),
    "processes that are each other's parents, as a torn look shows them": (
        (SERVER, process(20, 10, "VLLM::EngineCore"), process(70, 71, "a"), process(71, 70, "b")),
        STARTED, ("0",), {"0": [20]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("all_", "started", "engines", "pids"), STORIES.values(), ids=STORIES)
def test_processes_of_an_engine(all_, started, engines, pids):
    """Engine → PIDs, the core first."""
    found = find({each.pid: each for each in all_}, started, 8000, engines)
    assert {name: [each.pid for each in parts] for name, parts in found.items()} == pids


@pytest.mark.parametrize("words", [("--port", "8001"), ("--port=8001",)])
def test_the_port_of_a_command_line(words):
    """Both spellings; in place of the port that is the default."""
    all_ = {10: process(10, 1, *SERVE, *words), 20: process(20, 10, "VLLM::EngineCore")}
    assert list(find(all_, None, 8001, ("0",))) == ["0"]
    assert find(all_, None, 8000, ("0",)) == {}


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ("vllm serve m --port 8001", ("m", "--port", "8001")),
        ("/usr/bin/python3 /opt/bin/vllm serve m", ("m",)),
        ("python -u -X dev /opt/bin/vllm serve m", ("m",)),
        ("python3.12 -m vllm.entrypoints.openai.api_server --model m", ("--model", "m")),
        ("python -W ignore -m vllm serve m", ("m",)),
        ("python -u -m vllm.entrypoints.cli.main serve m", ("m",)),
        ("python /src/vllm/entrypoints/openai/api_server.py --model m", ("--model", "m")),
        ("python -m vllm.entrypoints.openai.run_batch -i in.jsonl", None),
        ("vllm bench serve", None),
        ("vllm-watch preflight -- vllm serve m", None),
        ("python /opt/bin/vllm-watch run", None),
        ("python -c import vllm; vllm serve", None),
        ("timeout 100 vllm serve m", None),
        ("vim vllm serve", None),
        ("grep -r vllm serve", None),
        ("bash -c vllm serve m", None),
        ("python -X", None),
        ("", None),
    ],
)
def test_only_the_server_itself_is_one(command, after):
    """A program that starts, seeks or mentions a server is not one."""
    assert arguments(command.split()) == after
