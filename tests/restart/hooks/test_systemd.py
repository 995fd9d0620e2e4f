"""The systemd hook against a systemctl with the real one's output and statuses, and against the real one where it is.

systemd cannot run in every place where tests do; docs/real-vllm.md says what stays unproven.
"""

import os
from dataclasses import replace

import pytest

from tests.restart.hooks.calls import CALL, call, systemctl
from tests.restart.waits import Waits
from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, child, systemd
from vllm_watch.settings.hooks import SystemdHook
from vllm_watch.sources import gpu_pids
from vllm_watch.sources.processes import ProcReader

RUNNING = {
    "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success",
    "MainPID": "0", "NRestarts": "0", "Restart": "always", "InvocationID": "a" * 32,
    "ControlGroup": "/system.slice/vllm.service", "CanStart": "yes",
}  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    """Make a machine with this vllm.service; return what hooks see of it."""

    def make(unit=None, name="vllm.service", **state):
        folder = tmp_path / "bin"
        folder.mkdir()
        systemctl(folder, {} if unit is None else {name: RUNNING | unit}, **state)
        return base.Tools(environ={"PATH": f"{folder}:{os.environ['PATH']}", "SECRET": "s"})

    return make


def hook(tools, **more):
    return systemd.Hook(SystemdHook(name="a", unit="vllm.service", **more), tools)


@pytest.mark.parametrize("user", [False, True])
async def test_unit_begins_anew(machine, tmp_path, user):
    """A restart is done when systemd has begun another invocation, not when it took the request; a failed unit may begin, too."""
    failed = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
    result = await hook(machine(failed, seconds=0.7), user=user).restart(CALL)
    assert (result.outcome, result.text) == ("done", "systemd restarted vllm.service")
    asked = (tmp_path / "bin/asked").read_text().splitlines()
    restarts = [line for line in asked if "restart" in line.split()]
    which = "--user" if user else "--system"
    assert restarts == [f"{which} --no-pager restart --no-block --no-ask-password -- vllm.service"]


async def test_each_target_has_the_unit_of_its_port(machine, tmp_path):
    """One hook for all engines of a template; a target without such a unit restarts nobody else's."""
    tools = machine({}, name="vllm@8001.service", seconds=0.1)
    asking = systemd.Hook(SystemdHook(name="a", unit="vllm@{port}.service"), tools)
    result = await asking.restart(call(url="http://127.0.0.1:8001"))
    assert (result.outcome, result.text) == ("done", "systemd restarted vllm@8001.service")
    for url, unit in (("http://127.0.0.1:8000", "vllm@8000"), ("http://localhost", "vllm@80")):
        other = await asking.restart(call(url=url))
        assert (other.outcome, other.text.split()[0]) == ("refused", f"{unit}.service")
    asked = (tmp_path / "bin/asked").read_text().splitlines()
    restarts = [line.split()[-1] for line in asked if "restart" in line.split()]
    assert restarts == ["vllm@8001.service"]


async def test_unit_that_does_not_begin_anew_is_uncertain(machine):
    """Taken and not carried out in time: it may still be."""
    result = await hook(machine({}), timeout_seconds=1.5).restart(CALL)
    assert result.outcome == "uncertain"
    assert "has not started within 1.5 s" in result.text


@pytest.mark.parametrize(
    ("status", "text", "outcome"),
    [
        (1, "Failed to restart vllm.service: Interactive authentication required.", "failed"),
        (4, "Zugriff verweigert", "failed"),
        (5, "Failed to restart vllm.service: Unit vllm.service not found.", "failed"),
        (1, "Failed to restart vllm.service: Unit vllm.service is masked.", "failed"),
        (4, "Failed to restart vllm.service: Operation refused, unit vllm.service may be requested by dependency only", "failed"),
        (1, "Failed to connect to bus: No such file or directory", "failed"),
        (1, "Failed to restart vllm.service: Connection reset by peer", "uncertain"),
    ],
)  # fmt: skip
async def test_what_systemd_does_not_take_is_said(machine, status, text, outcome):
    """Its own words are the reason; where the request may have arrived the end is uncertain."""
    result = await hook(machine({}, refuse={"status": status, "text": text})).restart(CALL)
    assert (result.outcome, result.text) == (outcome, f"systemd did not restart vllm.service: {text}")  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (None, "is not-found"),
        ({"LoadState": "masked"}, "is masked"),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, "about to restart vllm.service itself"),
        ({"ActiveState": "activating", "SubState": "start"}, "is activating (start)"),
        ({"ActiveState": "deactivating", "SubState": "stop-sigterm"}, "is deactivating (stop-sigterm)"),
        ({"ActiveState": "failed", "SubState": "failed", "Result": "start-limit-hit"}, "started too often"),
        ({"ActiveState": "inactive", "SubState": "dead"}, "it was stopped, or its server ended with status 0"),
    ],
)  # fmt: skip
async def test_refuses_while_systemd_has_a_hand_in_it(machine, tmp_path, unit, words):
    """What is starting, stopping, given up or stopped by a person is left alone."""
    asking = hook(machine(unit))
    assert words in await asking.refusal(CALL)
    assert (await asking.restart(CALL)).outcome == "refused"
    assert " restart " not in (tmp_path / "bin/asked").read_text()


@pytest.mark.parametrize("restart", ["no", "on-failure", "always"])
async def test_rehearsal_says_whether_systemd_starts_it_again(machine, tmp_path, restart):
    """This hook starts the unit itself, so a Restart= that leaves a dead engine dead is a finding, no refusal."""
    asking = hook(machine({"Restart": restart}))
    findings = await asking.rehearse(CALL)
    assert [finding.ok for finding in findings] == [True, restart == "always", True]
    assert f"Restart={restart}" in findings[1].text
    assert (findings[0].text, findings[0].remedy) == ("vllm.service is active (running)", None)
    assert await asking.refusal(CALL) is None
    assert " restart " not in (tmp_path / "bin/asked").read_text()


async def test_real_systemctl_is_understood():
    """The systemctl of this machine, with or without a systemd behind it, knows no such unit."""
    settings = SystemdHook(name="a", unit="vllm-watch-no-such-unit.service")
    refused = await systemd.Hook(settings, base.Tools()).refusal(CALL)
    assert refused is not None
    assert "is not-found" in refused or "systemd does not answer" in refused


class Unit:
    """A unit as systemd tells of it: `shown` in turns, the last for ever; None: it cannot be asked."""

    def __init__(self, monkeypatch, *shown, accepted=None):
        self.restarts, self.looks = 0, 0
        self._shown = list(shown)
        self._accepted = accepted or child.Ended(status=0)
        monkeypatch.setattr(systemd, "show", self._show)
        monkeypatch.setattr(systemd, "request_restart", self._restart)

    async def _show(self, tools, unit, *, user):
        self.looks += 1
        shown = self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]
        if shown is None:
            raise HookError("systemd does not answer", "wait")
        return shown

    async def _restart(self, tools, unit, *, user):
        self.restarts += 1
        return self._accepted


UNIT = systemd.Unit(
    name="vllm.service", load_state="loaded", active_state="active", sub_state="running", result="success",
    restart="always", main_pid=100, invocation="a",
)  # fmt: skip


async def test_new_invocation_is_waited_for(monkeypatch):
    """Twice a second, whatever systemd says in between: that it is busy, or that the unit has none."""
    stopping, anew = replace(UNIT, invocation=""), replace(UNIT, invocation="b")
    waits = Waits(monkeypatch, systemd)
    unit = Unit(monkeypatch, UNIT, UNIT, None, stopping, UNIT, anew)
    result = await hook(base.Tools()).restart(CALL)
    assert (result.outcome, unit.looks, waits.seconds) == ("done", 6, [0.5] * 4)


NOT_ACCEPTED = {
    "there is no systemctl": (child.Ended(unable="none"), "failed", "systemctl cannot be run: none"),
    "it does not answer": (child.Ended(timed_out=True), "uncertain", "systemctl did not answer within 10 s"),
    "its end is not known": (child.Ended(tail="a\nb"), "uncertain", "systemd did not restart vllm.service: a b"),
}  # fmt: skip


@pytest.mark.parametrize(("ended", "outcome", "text"), NOT_ACCEPTED.values(), ids=NOT_ACCEPTED)
async def test_what_is_made_of_a_restart_that_was_not_accepted(monkeypatch, ended, outcome, text):
    """Only what surely never became a job is no doubt; its beginning is not waited for."""
    unit = Unit(monkeypatch, UNIT, accepted=ended)
    result = await hook(base.Tools()).restart(CALL)
    assert (result.outcome, result.text, unit.looks) == (outcome, text, 1)


PROCESSES = {
    # when the server was observed to start, the unit's main process, is /proc the host's, who started when
    "its main process is the server": (1000.0, 100, True, {100: 1000.0, 101: 1.0}, False),
    "a process of it is the server": (1000.0, 100, True, {100: 1.0, 101: 1000.0}, False),
    "none is": (1000.0, 100, True, {100: 1.0, 101: 2.0, 102: 1000.0}, True),
    "the unit has no process": (1000.0, None, True, {100: 1.0}, False),
    "the process has just gone": (1000.0, 100, True, {102: 1.0}, False),
    "/proc is not the host's": (1000.0, 100, False, {100: 1.0}, False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("observed", "main", "initial", "started_t", "another"), PROCESSES.values(), ids=PROCESSES
)
async def test_unit_of_another_server_is_neither_restarted_nor_found_fit(
    monkeypatch, observed, main, initial, started_t, another
):
    """As far as the host's /proc shows it, one of the unit's processes must be the server."""
    parents = {100: 1, 101: 100, 102: 1}
    own = ProcReader().read(os.getpid())
    seen = {pid: replace(own, pid=pid, ppid=parents[pid]) for pid in started_t}
    namespace = gpu_pids.PidNamespace(initial=initial, levels_above_ours=0)
    monkeypatch.setattr(systemd.gpu_pids, "of_tree", lambda _: namespace)
    monkeypatch.setattr(systemd.server_process, "everything", lambda _: seen)
    monkeypatch.setattr(systemd, "started_at", lambda each, t: started_t[each.pid] == t)
    unit = Unit(monkeypatch, *[replace(UNIT, main_pid=main)] * 3, replace(UNIT, invocation="b"))
    told = call(process_start_time=observed)
    words = "no process of vllm.service has the start time of the observed server: it is a different one"
    asking = hook(base.Tools())
    assert await asking.refusal(told) == (words if another else None)
    [found, *_] = await asking.rehearse(told)
    assert (found.ok, found.text == words) == (not another, another)
    result = await asking.restart(told)
    assert (result.outcome, unit.restarts) == (("refused", 0) if another else ("done", 1))
