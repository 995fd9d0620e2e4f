"""The signal hook ends real processes here, which pose as vLLM with its command line, titles and children."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.restart.hooks.calls import alive, call, gone, started, until
from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, server_process
from vllm_watch.restart.hooks import signal as signal_hook
from vllm_watch.settings.hooks import SignalHook
from vllm_watch.sources.processes import ProcReader

POSING = Path(__file__).parent / "posing_vllm.py"


@dataclass
class Vllm:
    process: subprocess.Popen
    port: int
    engine: int
    worker: int
    helper: int

    @property
    def pid(self):
        return self.process.pid

    def call(self, **changed):
        told = {"url": f"http://127.0.0.1:{self.port}", "process_start_time": started(self.pid)}
        return call(**(told | changed))


@pytest.fixture
def serve(tmp_path):
    """Start servers that pose as vLLM; nothing of them outlives the test."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.symlink_to(POSING)
    servers = []

    def start(*words):
        argv = [sys.executable, str(program), "serve", *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        servers.append(Vllm(process, *map(int, process.stdout.readline().split())))
        return servers[-1]

    yield start
    for server in servers:
        for pid in (server.pid, server.engine, server.worker, server.helper):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        server.process.stdout.close()
        server.process.wait(10)


def hook(*, terminate_seconds=20.0, supervised_by="the test", procfs="/proc", **more):
    settings = SignalHook(
        name="a", terminate_seconds=terminate_seconds, timeout_seconds=60.0,
        supervised_by=supervised_by, **more,
    )  # fmt: skip
    return signal_hook.Hook(settings, base.Tools(procfs=Path(procfs)))


async def test_server_ends_by_sigterm(serve):
    """A healthy server gets SIGTERM, ends its engines itself, and is not waited for longer than that."""
    vllm, other = serve(), serve()
    result = await hook().restart(vllm.call())
    assert (result.outcome, result.text) == ("done", f"process {vllm.pid} ended by SIGTERM")
    assert [pid for pid in (vllm.pid, vllm.engine, vllm.worker) if alive(pid)] == []
    assert all(alive(pid) for pid in (other.pid, other.engine, other.worker))


async def test_hung_server_ends_by_sigkill_with_its_engines_and_nothing_else(serve):
    """What ignores SIGTERM is killed, with the engine and the worker that are left; its helper is not."""
    vllm, other = serve("--stubborn"), serve("--stubborn")
    result = await hook(terminate_seconds=0.5).restart(vllm.call())
    assert result.outcome == "done"
    assert result.text == (
        f"process {vllm.pid} ended by SIGKILL, 0.5 s after SIGTERM, and 2 left of its engines by SIGKILL"
    )
    assert [pid for pid in (vllm.pid, vllm.engine, vllm.worker) if alive(pid)] == []
    assert alive(vllm.helper)
    assert all(alive(pid) for pid in (other.pid, other.engine, other.worker, other.helper))


async def test_engines_that_stay_behind_are_killed(serve):
    """A server that ends and leaves its engines on the GPU has not ended."""
    vllm = serve("--engines-stay")
    result = await hook().restart(vllm.call())
    assert (
        result.text == f"process {vllm.pid} ended by SIGTERM, and 2 left of its engines by SIGKILL"
    )
    assert [pid for pid in (vllm.engine, vllm.worker) if alive(pid)] == []


async def test_server_that_survives_sigkill_is_uncertain(serve, monkeypatch):
    """Stuck in the kernel it may end later. No process here can be: the wait for its end is told that it goes on."""
    vllm = serve()

    async def stays(processes, seconds):
        return list(processes)

    monkeypatch.setattr(signal_hook, "_left", stays)
    result = await hook(terminate_seconds=0.5).restart(vllm.call())
    assert result.outcome == "uncertain"
    assert "does not end by SIGKILL" in result.text


async def test_stopped_server_is_ended(serve):
    """SIGTERM waits for a stopped process for ever, SIGKILL does not."""
    vllm = serve()
    for pid in (vllm.pid, vllm.engine):
        os.kill(pid, signal.SIGSTOP)
    result = await hook(terminate_seconds=0.5).restart(vllm.call())
    assert result.outcome == "done", result.text
    assert [pid for pid in (vllm.pid, vllm.engine, vllm.worker) if alive(pid)] == []


async def test_server_whose_parent_is_gone_is_found(serve, tmp_path):
    """Started by a shell that has ended, it belongs to another parent and is still the one on its port."""
    program = tmp_path / "bin" / "vllm"
    (tmp_path / "said").touch()
    script = f"{sys.executable} {program} serve >> {tmp_path}/said & echo $! > {tmp_path}/pid"
    subprocess.run(["/bin/sh", "-c", script], check=True, timeout=10)
    assert until(lambda: (tmp_path / "said").read_text().endswith("\n"))
    port, *others = map(int, (tmp_path / "said").read_text().split())
    pid = int((tmp_path / "pid").read_text())
    try:
        url = f"http://localhost:{port}"
        result = await hook().restart(call(url=url, process_start_time=started(pid)))
        assert (result.outcome, result.text) == ("done", f"process {pid} ended by SIGTERM")
    finally:
        for each in filter(alive, [pid, *others]):
            os.kill(each, signal.SIGKILL)


async def test_zombie_is_no_server(serve):
    """A server that has ended, unnoticed by its parent, gets no signal: nobody would start it again."""
    vllm = serve()
    os.kill(vllm.pid, signal.SIGKILL)
    assert until(lambda: not alive(vllm.pid))
    assert "no vLLM server is found" in await hook().refusal(vllm.call())


async def test_engine_that_lost_its_server_is_none(serve):
    """An orphaned engine that still holds the port is not the server that was observed."""
    vllm = serve("--engines-stay", "--stubborn")
    told = vllm.call()
    os.kill(vllm.pid, signal.SIGKILL)
    vllm.process.wait(10)
    assert (await hook().restart(told)).outcome == "refused"
    assert (await hook().restart(replace(told, process_start_time=None))).outcome == "refused"
    assert alive(vllm.engine)


async def test_another_incarnation_is_spared(serve):
    """A server that began at another time was started again since: it is healthy for all we know."""
    vllm = serve()
    for seconds in (-60.0, 60.0):
        told = vllm.call(process_start_time=started(vllm.pid) + seconds)
        result = await hook().restart(told)
        assert result.outcome == "refused"
        assert "did not start when the observed server did" in result.text
    assert alive(vllm.pid)


async def test_successor_with_the_same_pid_is_spared(serve):
    """Between finding a process and holding it, its number may pass to another one: then it is let go."""
    vllm = serve()
    found = ProcReader().read(vllm.pid)
    predecessor = replace(found, start_ticks=found.start_ticks - 100)
    with ExitStack() as descriptors:
        assert signal_hook._hold(base.Tools(), found, descriptors).pid == vllm.pid
        assert signal_hook._hold(base.Tools(), predecessor, descriptors) is None


async def test_signal_for_a_process_that_has_ended_hits_nobody(serve):
    """What is held stays the process it was opened for, also after its PID is free again."""
    vllm = serve()
    with ExitStack() as descriptors:
        held = signal_hook._hold(base.Tools(), ProcReader().read(vllm.pid), descriptors)
        os.kill(vllm.pid, signal.SIGKILL)
        vllm.process.wait(10)
        assert held.send(signal.SIGTERM) is False


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "No such file or directory"),
        ("", "it holds no number"),
        ("-1\n", "does not run"),
        ("4194305", "does not run"),
        ("{helper}\n", "is no vLLM server"),
        ("{engine}\n", "is no vLLM server"),
    ],
)
async def test_pid_file_that_names_no_server_is_not_believed(serve, tmp_path, content, cause):
    """A PID file that is missing, stale, or of another program ends nothing."""
    vllm = serve()
    file = tmp_path / "vllm.pid"
    if content is not None:
        file.write_text(content.format(helper=vllm.helper, engine=vllm.engine))
    result = await hook(pid_file=file).restart(vllm.call())
    assert result.outcome == "refused"
    assert cause in result.text
    assert all(alive(pid) for pid in (vllm.pid, vllm.engine, vllm.helper))


async def test_pid_file_names_the_server(serve, tmp_path):
    """With a PID file the port is not needed where the start is known, and must fit where it is not."""
    vllm, other = serve(), serve()
    (tmp_path / "vllm.pid").write_text(f"{vllm.pid}\n")
    by_file = hook(pid_file=tmp_path / "vllm.pid")
    assert await by_file.refusal(vllm.call(url="http://192.0.2.1")) is None
    assert await by_file.refusal(vllm.call(process_start_time=None)) is None
    stale = other.call(process_start_time=None)
    assert "no vLLM server is found" in await by_file.refusal(stale)
    assert (await by_file.restart(vllm.call())).outcome == "done"


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:{port}", "http://[2001:db8::1]:{port}", "http://127.0.0.1:1"]
)
async def test_server_of_another_host_is_not_ours(serve, url):
    """The same port on another machine is another server, also where both started in the same second."""
    vllm = serve()
    told = vllm.call(url=url.format(port=vllm.port))
    assert "no vLLM server is found" in await hook().refusal(told)
    unknown = vllm.call(url="http://no-such-host.invalid:1")
    assert "cannot be resolved" in await hook().refusal(unknown)


async def test_two_that_fit_are_one_too_many(serve):
    """Two servers that share a port cannot be told apart: none is ended."""
    one = serve("--shared")
    two = serve("--shared", "--port", str(one.port))
    told = one.call(process_start_time=None)
    result = await hook().restart(told)
    assert result.outcome == "refused"
    assert "several servers are found" in result.text
    assert alive(one.pid)
    assert alive(two.pid)


async def test_server_that_nobody_starts_again_is_not_ended(serve):
    """Without a supervisor, seen or told, the hook refuses: a slow server is better than none."""
    vllm = serve()
    result = await hook(supervised_by="").restart(vllm.call())
    assert result.outcome == "refused"
    assert result.text.startswith("nothing is known to start it again: ")
    assert alive(vllm.pid)


async def test_pids_of_another_namespace_are_not_signalled(tmp_path):
    """Numbers of a /proc that is not ours mean other processes here."""
    refused = await hook(procfs=tmp_path).refusal(call())
    assert "are not those that vllm-watch can signal" in refused


async def test_rehearsal_ends_nothing(serve):
    """A rehearsal names the process and who starts it again."""
    vllm = serve()
    findings = await hook().rehearse(vllm.call())
    assert [(finding.ok, finding.text) for finding in findings] == [
        (True, f"the server is process {vllm.pid}, with 2 of engines and workers"),
        (True, "the test starts it again: supervised_by says so, it was not seen"),
    ]
    assert alive(vllm.pid)


async def test_cancelled_while_it_waits_it_leaves_the_rest(serve):
    """Stopped between SIGTERM and SIGKILL it sends no more, and leaves nothing of its own."""
    vllm = serve("--stubborn")
    running = asyncio.create_task(hook().restart(vllm.call()))
    done, _ = await asyncio.wait((running,), timeout=2.0)
    assert not done
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(vllm.pid)
    assert not gone(vllm.engine, 0.1)


SERVERS = {
    "/usr/bin/python3 /usr/local/bin/vllm serve m": True,
    "/venv/bin/vllm serve m": True,
    "python3.12 -m vllm.entrypoints.openai.api_server --model m": True,
    "python -u -m vllm.entrypoints.api_server": True,
    "python /opt/vllm/entrypoints/openai/api_server.py": True,
    "VLLM::APIServer": True,
    "VLLM::EngineCore": False,
    "VLLM::Worker_TP0": False,
    "/usr/bin/python3 /usr/local/bin/vllm bench": False,
    "python -m vllm_watch run": False,
    "/opt/venv/bin/python /opt/venv/bin/vllm-watch run": False,
    "timeout 100 vllm serve m": False,
    "tini -- vllm serve m": False,
    "vim vllm serve": False,
    "": False,
}


@pytest.mark.parametrize(("cmdline", "expected"), SERVERS.items())
def test_server_is_known_by_its_command_line(cmdline, expected):
    """vLLM however it is started; not its engines, not what wraps it, not vllm-watch."""
    assert server_process.is_server(tuple(cmdline.split())) is expected


async def test_a_server_that_cannot_be_found_again_is_spared(serve, monkeypatch):
    """Between the look that allows it and the one that ends it, it may have gone."""
    vllm, asked = serve(), hook()
    find = asked._find

    async def once(call):
        monkeypatch.setattr(asked, "_find", never)
        return await find(call)

    async def never(call):
        raise HookError("no process serves there any more", "look")

    monkeypatch.setattr(asked, "_find", once)
    result = await asked.restart(vllm.call())
    assert (result.outcome, result.text) == ("refused", "no process serves there any more")
    assert alive(vllm.pid)


@dataclass
class Held:
    """A process that is held; `answers` has what sending it a signal gives: False, or an error."""

    pid: int
    answers: dict = field(default_factory=dict)
    sent: list = field(default_factory=list)

    def send(self, number):
        self.sent.append(number)
        answer = self.answers.get(number, True)
        if isinstance(answer, type):
            raise answer
        return answer


class Machine:
    """A server, 100, with engines 101 and 102; `left` are the PIDs that have not ended after each wait, in turns."""

    def __init__(self, monkeypatch, *left, **answers):
        self.processes = {pid: Held(pid) for pid in (100, 101, 102, 103)}
        for name, answer in answers.items():
            kind, _, pid = name.partition("_")
            self.processes[int(pid)].answers[getattr(signal, kind, 0)] = answer
        self.gone, self.born, self.waits, self._left = set(), {}, [], list(left)
        own = ProcReader().read(os.getpid())
        engine = replace(own, name="VLLM::EngineCore", cmdline=("VLLM::EngineCore",), ppid=100)
        self.facts = {100: replace(own, pid=100, ppid=1)}
        self.facts |= {pid: replace(engine, pid=pid) for pid in (101, 102)}
        self.born = self.facts | {103: replace(engine, pid=103)}
        monkeypatch.setattr(signal_hook, "_hold", self._hold)
        monkeypatch.setattr(signal_hook, "_left", self._wait)
        monkeypatch.setattr(server_process, "everything", lambda _: self.born)
        monkeypatch.setattr(server_process, "find", self._find)

    async def restart(self):
        return await hook(terminate_seconds=7.0).restart(call())

    async def _find(self, tools, call, *, port, pid_file):
        return server_process.Server(facts=self.facts[100], all=self.facts)

    def _hold(self, tools, facts, descriptors):
        return None if facts.pid in self.gone else self.processes[facts.pid]

    async def _wait(self, processes, seconds):
        pids = [each.pid for each in processes]
        self.waits.append((pids, seconds))
        left = self._left.pop(0)
        return [self.processes[pid] for pid in pids if pid in left]

    def killed(self):
        return [pid for pid, each in self.processes.items() if signal.SIGKILL in each.sent]


async def test_it_waits_as_long_as_it_may(monkeypatch):
    """For the server what the settings say, for the kernel five seconds, for engines that end themselves two."""
    machine = Machine(monkeypatch, [], [], [])
    result = await machine.restart()
    assert (result.outcome, result.text) == ("done", "process 100 ended by SIGTERM")
    assert machine.waits == [([100], 7.0), ([100], 5.0), ([101, 102], 2.0)]
    assert (machine.processes[100].sent, machine.killed()) == ([0, signal.SIGTERM], [])


async def test_engine_that_was_born_meanwhile_is_ended_too(monkeypatch):
    """And none is ended that has ended itself."""
    machine = Machine(monkeypatch, [100], [], [101, 103], [])
    result = await machine.restart()
    assert result.outcome == "done"
    assert result.text == (
        "process 100 ended by SIGKILL, 7 s after SIGTERM, and 2 left of its engines by SIGKILL"
    )
    assert machine.waits == [
        ([100], 7.0), ([100], 5.0), ([101, 102, 103], 2.0), ([101, 103], 3.0),
    ]  # fmt: skip
    assert machine.processes[100].sent == [0, signal.SIGTERM, 0, signal.SIGKILL]
    assert machine.killed() == [100, 101, 103]


@pytest.mark.parametrize("case", ["ended", "not seen", "another user's"])
async def test_engines_are_looked_for_again_while_their_server_lives(monkeypatch, case):
    """A PID that has been given away would lead to somebody else's children."""
    machine = Machine(monkeypatch, [100], [], [])
    main, looks = machine.processes[100], []
    send = main.send

    def dies(number):
        answer = send(number)
        if number == 0:
            looks.append(number)
        if len(looks) < 2 or number != 0:
            return answer
        if case == "another user's":
            raise PermissionError
        return case != "ended"

    main.send = dies
    if case == "not seen":
        machine.born = {pid: each for pid, each in machine.born.items() if pid != 100}
    await machine.restart()
    (engines, _) = machine.waits[2]
    assert engines == ([101, 102, 103] if case == "another user's" else [101, 102])


ENDS = {
    # what answers a signal, who has not ended after each wait: outcome, words, killed
    "gone before SIGTERM": (
        {"SIGTERM_100": False}, [], "refused", "process 100 has ended by itself", []),
    "not ours to end": (
        {"SIGTERM_100": PermissionError}, [], "failed", "process 100 may not be signalled: it is another user's", []),
    "it is stuck": (
        {}, [[100], [100]], "uncertain", "process 100 does not end by SIGKILL: it waits in the kernel (state D)", [100]),
    "its engines are stuck": (
        {}, [[], [], [101, 102], [101, 102]], "uncertain",
        "process 100 ended by SIGTERM, but of its engines 101, 102 cannot be ended: they wait in the kernel (state D)",
        [101, 102]),
    "an engine is not ours to end": (
        {"SIGKILL_101": PermissionError}, [[], [], [101, 102], [101]], "uncertain",
        "process 100 ended by SIGTERM, but of its engines 101 cannot be ended: they are another user's", [101, 102]),
    "an engine that was not ours to end has ended": (
        {"SIGKILL_101": PermissionError}, [[], [], [101, 102], []], "done",
        "process 100 ended by SIGTERM, and 2 left of its engines by SIGKILL", [101, 102]),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "left", "outcome", "text", "killed"), ENDS.values(), ids=ENDS)
async def test_how_it_ends(monkeypatch, answers, left, outcome, text, killed):
    """Only what surely did nothing is no doubt; all that is left of it is named."""
    machine = Machine(monkeypatch, *left, **answers)
    result = await machine.restart()
    assert (result.outcome, result.text, machine.killed()) == (outcome, text, killed)


@pytest.mark.parametrize(("gone", "held"), [(101, [102]), (102, [101])])
async def test_engine_that_has_gone_is_no_hindrance(monkeypatch, gone, held):
    """The others are ended."""
    machine = Machine(monkeypatch, [], [], [])
    machine.gone = {gone}
    assert (await machine.restart()).outcome == "done"
    assert machine.waits[2] == (held, 2.0)


async def test_server_that_goes_after_the_look_that_allows_it(monkeypatch):
    """Nobody is signalled."""
    machine = Machine(monkeypatch)
    asked = hook()
    refusal = asked.refusal

    async def then_gone(told):
        said = await refusal(told)
        machine.gone = {100}
        return said

    monkeypatch.setattr(asked, "refusal", then_gone)
    result = await asked.restart(call())
    assert (result.outcome, result.text) == ("refused", "process 100 has ended by itself")
    assert machine.processes[100].sent == [0]


async def test_rehearsal_says_why_it_may_not(monkeypatch):
    """And what to do about it."""
    machine = Machine(monkeypatch, alive_100=PermissionError)
    [found] = await hook().rehearse(call())
    assert (found.ok, found.text) == (
        False,
        "process 100 may not be signalled: it is another user's",
    )
    assert found.remedy == "run vllm-watch as its user, or with CAP_KILL"
    machine.gone = {100}
    [found] = await hook().rehearse(call())
    assert (found.ok, found.text) == (False, "process 100 has just ended")
    assert await hook().refusal(call()) == "process 100 has just ended"


def test_it_takes_as_long_as_the_settings_say():
    """So long the call is waited for."""
    assert hook().timeout_seconds == 60.0


@pytest.fixture
def sleeping():
    """Processes that sleep, held by their pidfds."""
    processes, descriptors = [], ExitStack()

    def start():
        process = subprocess.Popen(["sleep", "300"])
        processes.append(process)
        facts = ProcReader().read(process.pid)
        return process, signal_hook._hold(base.Tools(), facts, descriptors)

    yield start
    descriptors.close()
    for process in processes:
        process.kill()
        process.wait(10)


async def test_ends_are_waited_for_and_no_longer(sleeping):
    """Those that go on are named; nothing of the wait is left in the loop."""
    loop, wrong = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    (one, held_one), (_, held_two) = sleeping(), sleeping()
    async with asyncio.timeout(10):
        assert await signal_hook._left((), 60) == []
        one.kill()
        assert await signal_hook._left([held_one], 60) == []
        assert await signal_hook._left([held_one, held_two], 0.05) == [held_two]
    assert not any(loop.remove_reader(each.descriptor) for each in (held_one, held_two))
    assert wrong == []


async def test_what_was_held_is_let_go(sleeping):
    """No descriptor stays open, whatever was found behind it."""
    process, held = sleeping()
    assert held.send(0) is True
    found = ProcReader().read(process.pid)
    open_before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as descriptors:
        assert signal_hook._hold(base.Tools(), found, descriptors).pid == process.pid
        other = replace(found, start_ticks=found.start_ticks - 1)
        assert signal_hook._hold(base.Tools(), other, descriptors) is None
    assert len(os.listdir("/proc/self/fd")) == open_before
    process.kill()
    assert until(lambda: not alive(process.pid))
    with ExitStack() as descriptors:  # a zombie, and nothing at all
        assert signal_hook._hold(base.Tools(), found, descriptors) is None
        unseen = base.Tools(procfs=Path("/var/empty"))
        assert signal_hook._hold(unseen, found, descriptors) is None
        process.wait(10)
        assert signal_hook._hold(base.Tools(), found, descriptors) is None
    assert held.send(signal.SIGTERM) is False
