"""The GPUs of a host are judged once: whom their trouble hits, who pages, and what another run takes up."""

import json
from dataclasses import replace

import pytest

from tests.detectors.looks import T, seen
from tests.watch.hosted import Hosted, core, gpu, notebook, opened, pages
from vllm_watch.detectors.base import View
from vllm_watch.detectors.collapse_host import Fresh, of_slow_steps
from vllm_watch.story.kinds import STORIES
from vllm_watch.watch.host_watch import HostWatch, ServerScrape

HOST = "host:h"
A, B = core(11, 10), core(21, 20)
KNOWN = {"a": {10, 11}, "b": {20, 21}}  # their processes are seen: so their GPUs are known
UNKNOWN = {"a": (), "b": ()}  # and as they started at the same time, nobody can tell


def two(first=(), second=(), **pids):
    """Server a on GPU 0, server b on GPU 1; with these faults there."""
    return Hosted((gpu(0, A, **dict(first)), gpu(1, B, **dict(second))), **pids)


def test_an_xid_concerns_the_server_on_that_gpu_alone():
    """Both crash; the one whose GPU had the error is a ticket beside it, and its restart is advised."""
    one = two(**KNOWN)
    one.until(300)
    one.gpus = (gpu(0, A, xid_errors=(31,)), gpu(1, B))
    one.down = {"a": "refused", "b": "refused"}
    told = one.until(330)
    fault = one.open(HOST)["gpu_fault"]
    assert (fault.concerns, fault.restart_targets, fault.restart_advised) == (("a",), ("a",), True)
    assert (fault.advises_restart_of("a"), fault.advises_restart_of("b")) == (True, False)
    a, b = one.open("a")["engine_down"], one.open("b")["engine_down"]
    assert (fault.related, a.related, b.related) == ((a.id,), (fault.id,), ())
    assert fault.severity == "ticket"
    assert {name for name, _ in pages(told)} == {"a", "b"}, "a ticket beside it silences no page"
    assert [sum(sign.name == "gpu_trouble" for sign in each.evidence_for) for each in (a, b)] == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("where", "pids", "advised"), [("b", KNOWN, True), ("a", KNOWN, False), ("b", UNKNOWN, False)]
)
def test_a_gpu_that_must_be_reset_keeps_from_a_restart_only_who_may_run_on_it(where, pids, advised):
    """Server a hangs while a GPU of the host has an uncorrectable error."""
    one = two(**pids)
    one.until(300)
    faulty = {where: {"xid_errors": (95,)}}
    one.gpus = (gpu(0, A, **faulty.get("a", {})), gpu(1, B, **faulty.get("b", {})))
    one.hung = {"a": 300}
    one.until(420)
    hang = one.open("a")["engine_stalled"]
    assert hang.restart_advised is advised
    assert [each.name for each in hang.evidence_for if each.name == "gpu_trouble"] == (
        [] if advised else ["gpu_trouble"]
    )


def test_a_gpu_that_turns_out_to_be_anothers_is_not_lost():
    """While nobody knows whose it is, every server may run there."""
    one = two(**UNKNOWN)
    one.until(100)
    one.pids = KNOWN
    one.until(300)
    one.hung = {"a": 300}
    one.until(420)
    hang = one.open("a")["engine_stalled"]
    assert (hang.restart_advised, one.host.around("a").others_gpus) == (True, {"GPU-1"})


def test_a_gpu_says_which_targets_run_there():
    """By their processes; of servers that nobody can tell apart, nothing; and of one that has gone, where it ran."""
    one = two(**UNKNOWN)
    one.until(100)
    assert [each.targets for each in one.host.holders] == [(), ()]
    one.pids = KNOWN
    one.until(200)
    assert [each.targets for each in one.host.holders] == [("a",), ("b",)]
    assert [one.host.around(name).core for name in "abc"] == ["VLLM::EngineCore (PID 11)", "VLLM::EngineCore (PID 21)", None]  # fmt: skip
    one.gpus, one.down = (gpu(0), gpu(1, B)), {"a": "refused"}
    one.until(300)
    assert [each.targets for each in one.host.holders] == [("a",), ("b",)]
    assert one.host.around("a").core is None


def test_a_crash_names_the_core_that_was_left_behind_once_it_is_stale():
    """Its memory would fail the next start: it must end first. One that ends by itself is not named."""
    one = two(**KNOWN)
    one.until(300)
    left = replace(A, ppid=1, sm_utilization_ratio=0.0)
    one.gpus, one.down = (gpu(0, left), gpu(1, B)), {"a": "refused"}
    one.until(340)
    assert [each.name for each in one.open("a")["engine_down"].evidence_for] == ["seconds_refused"]
    one.until(400)
    crash = one.open("a")["engine_down"]
    text = "its engine core was left behind and still holds GPU memory: VLLM::EngineCore (PID 11)"
    assert (crash.cause, text in crash.texts) == ("crash", True)
    step = STORIES["engine_down"].first_step_of("crash", advised=False, known=crash.texts)
    assert step.startswith(
        "End the engine core that it left (vllm-watch gpus --reclaim 11): no start finds GPU memory until then. If its"
    )
    one.gpus = (gpu(0), gpu(1, B))
    one.until(410)
    assert text not in one.open("a")["engine_down"].texts


def test_another_servers_hot_gpu_is_not_why_a_server_is_slow():
    """Only the GPUs on which it may run are looked at."""
    hot = {"throttle_reasons": ("hw_thermal_slowdown",)}
    one = two(second=hot, **KNOWN)
    one.until(10)
    around = one.host.around("a")
    view = View(
        at_s=10.0, known=True, observation=seen(10, gpus=one.gpus), signals=one.watches["a"].signals, around=around
    )  # fmt: skip
    assert [each.uuid for each in view.gpus] == ["GPU-0"]
    assert of_slow_steps(view.gpus, Fresh(), None).name == "slow_engine"
    assert of_slow_steps(one.gpus, Fresh(), None).name == "thermal_throttle"


def test_of_two_servers_whose_gpus_are_unknown_nobody_is_restarted_or_silenced():
    """A GPU that must be reset pages for itself; a server that is down then is down for reasons that nobody knows."""
    one = two(**UNKNOWN)
    one.until(300)
    one.gpus = (gpu(0, A, xid_errors=(95,)), gpu(1, B))
    one.down = {"a": "refused"}
    told = one.until(330)
    fault, down = one.open(HOST)["gpu_fault"], one.open("a")["engine_down"]
    assert (fault.concerns, fault.restart_targets, fault.restart_advised) == ((), (), False)
    assert (fault.severity, down.severity, down.related) == ("page", "page", ())
    assert sorted(set(pages(told))) == [("a", "engine_down"), (HOST, "gpu_fault")]


@pytest.mark.parametrize(("pids", "advised"), [({10, 11}, True), ((), False)])
def test_with_one_server_the_link_is_made_and_a_restart_advised_only_where_its_gpu_is_known(
    pids, advised
):
    """Whose error it is goes without saying; to end a server for it takes more."""
    on_host = (gpu(0, A),) if advised else (gpu(0),)
    one = Hosted(on_host, a=pids)
    one.until(300)
    one.gpus = tuple(gpu(0, *each.processes, xid_errors=(31,)) for each in on_host)
    one.down = {"a": "refused"}
    one.until(330)
    fault, down = one.open(HOST)["gpu_fault"], one.open("a")["engine_down"]
    assert fault.concerns == ("a",)
    assert (fault.restart_advised, fault.restart_targets) == (advised, ("a",) if advised else ())
    assert (fault.related, down.related) == ((down.id,), (fault.id,))


def test_a_lost_gpu_is_one_page_and_the_crash_a_ticket():
    """Two incidents that know of each other; the other server on the host is not spoken of."""
    one = two(**KNOWN)
    one.until(300)
    one.gpus = (gpu(1, B),)
    one.down = {"a": "refused"}
    told = one.until(400)
    fault, down = one.open(HOST)["gpu_fault"], one.open("a")["engine_down"]
    assert (fault.cause, fault.severity, fault.concerns) == ("gpu_lost", "page", ("a",))
    assert (down.severity, fault.related, down.related) == ("ticket", (down.id,), (fault.id,))
    assert [who for who, _ in pages(told)][-1] == HOST
    assert opened(told).count((HOST, "gpu_fault", "page")) == 1
    assert one.open("b") == {}


def test_a_crash_that_is_seen_before_its_gpu_is_missed_is_taken_back():
    """It paged, since nobody knew better; from then on one page holds for both."""
    one = two(**KNOWN)
    one.until(300)
    one.down = {"a": "refused"}
    assert pages(one.until(320)) == [("a", "engine_down")]
    one.gpus = (gpu(1, B),)
    told = one.until(400)
    assert opened(told) == [(HOST, "gpu_fault", "page")]
    milder = [e for e in told if e["target"] == "a"]
    assert {(e["event"], e["severity"]) for e in milder} == {("updated", "ticket")}
    assert milder[-1]["related"] == [one.open(HOST)["gpu_fault"].id]


def test_one_notebook_beside_four_servers_is_one_incident_whatever_they_do():
    """Opened once; that one of the four crashes again and again neither ends it nor opens it anew."""
    cores = [core(10 * n + 1, 10 * n) for n in range(1, 5)]
    pids = {f"s{n}": {10 * n, 10 * n + 1} for n in range(1, 5)}
    held = notebook()
    with_all = (gpu(0, cores[0], held), *(gpu(n, cores[n]) for n in range(1, 4)))
    one = Hosted(with_all, **pids)
    one.until(2400)
    (stale,) = one.host.incidents
    assert (stale.kind, stale.cause, stale.concerns) == ("stale_vram", "idle_notebook", ("s1",))
    for crash in range(4):
        one.down = {"s1": "refused"}
        one.gpus = (gpu(0, held), *with_all[1:])
        one.until(one.second + 120)
        one.down.clear()
        again = core(1000 + crash, 10, started=T + one.second)
        one.pids["s1"] = {10, 1000 + crash}
        one.gpus = (gpu(0, again, held), *with_all[1:])
        one.until(one.second + 120)
    of_host = [e for e in one.told if e["target"] == HOST]
    assert [e["event"] for e in of_host if e["event"] != "updated"] == ["opened"]
    assert {e["id"] for e in of_host} == {stale.id}
    assert one.host.opened == {"stale_vram": 1}
    (now,) = one.host.incidents
    assert (now.id, now.concerns) == (stale.id, ("s1",))
    assert "which s1 (VLLM::EngineCore, process 1003) uses" in now.summary


def busy_orphan(second):
    """An engine core whose parent dies at 100 s, and that keeps its GPU busy."""
    return gpu(0, replace(core(11, 10 if second < 100 else 1), cpu_seconds=1.0 + second))


@pytest.mark.parametrize(("servers", "verdict"), [({}, "vllm"), ({"a": ServerScrape()}, "stale")])
def test_an_orphan_at_work_is_left_behind_only_where_a_server_was_asked_in_vain(servers, verdict):
    """On a host of which no server is watched it may be anybody's, and serve."""
    host = HostWatch("h")
    for second in range(0, 1200, 5):
        host.look(T + second, None, (busy_orphan(second),), servers)
    ((holder,),) = (each.holders for each in host.holders)
    assert holder.judged.verdict == verdict


@pytest.mark.parametrize(
    ("pids", "verdict"),
    [({20, 21}, "stale"), ({20}, "vllm"), ({20, 22}, "vllm"), ((), "vllm")],
    ids=["with its engine", "its engine unseen", "another process of it on a GPU", "unseen"],
)
def test_an_orphan_beside_an_older_server_that_answers(pids, verdict):
    """Who is served by a core of its own is not served by this one; whose core is not seen may be."""
    host = HostWatch("h")
    servers = {"a": ServerScrape(), "b": ServerScrape(up=True, serves=True, pids=frozenset(pids))}
    older = replace(B, create_time=A.create_time - 3600)
    beside = notebook(22) if 22 in pids else None
    for second in range(0, 300, 5):
        left = A if second < 100 else replace(A, ppid=1, sm_utilization_ratio=0.0)
        host.look(T + second, None, (gpu(0, left), gpu(1, *filter(None, (older, beside)))), servers)
    found = {h.process.pid: h.judged.verdict for each in host.holders for h in each.holders}
    assert (found[11], found[21]) == (verdict, "vllm")


# --- another run of the watcher


def kept(host):
    return json.loads(json.dumps(host.export_state(), allow_nan=False))


def test_another_run_goes_on_with_what_was_open_and_knows_who_runs_where():
    """The same incident under the same id; the server that is down is still the one of that GPU."""
    one = two(**KNOWN)
    one.until(60)
    one.gpus = (gpu(1, B),)
    one.down = {"a": "refused"}
    one.until(100)
    before = one.host.incidents
    again = HostWatch("h")
    assert again.restore(kept(one.host)) == []
    assert (again.incidents, again.opened) == (before, one.host.opened)
    one.host = again
    told = one.until(160)
    assert [e for e in told if e["target"] == HOST and e["event"] == "opened"] == []
    one.gpus = (gpu(0, xid_errors=(31,)), gpu(1, B))
    one.until(170)
    assert one.open(HOST)["gpu_fault"].concerns == ("a",)


DAMAGES = {
    "another version": lambda state: state | {"version": 99},
    "users that are none": lambda state: state | {"users": {"a": 7}},
    "incidents that are none": lambda state: state | {"lifecycle": {"version": 2, "followed": "x"}},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_damaged_is_named_and_watching_goes_on(damage):
    one = two(**KNOWN)
    one.gpus = (gpu(0, A, lost=True), gpu(1, B))
    one.until(10)
    again = HostWatch("h")
    (lost,) = again.restore(damage(kept(one.host)))
    assert lost.startswith("all: ")
    assert again.incidents == ()
    (event,) = again.look(T + 60, None, (gpu(0, A, lost=True),), {})
    assert event.event == "opened"


def test_an_orphan_at_work_beside_a_server_with_an_engine_of_its_own_may_serve():
    """Somebody whom nobody watches may answer for it."""
    host, servers = HostWatch("h"), {"b": ServerScrape(up=True, serves=True, pids=frozenset({21}))}
    older = replace(B, create_time=A.create_time - 3600)
    for second in range(0, 1200, 5):
        host.look(T + second, None, (busy_orphan(second), gpu(1, older)), servers)
    assert [h.judged.verdict for each in host.holders for h in each.holders] == ["vllm", "vllm"]


def test_before_the_first_look_there_is_nothing_to_keep():
    assert HostWatch("h").export_state() is None
