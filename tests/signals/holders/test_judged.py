"""What is said of a holder that is no vLLM, how old it is, and what is forgotten."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import GIB, POD, SESSION, T, core, gpu, kernel, look_on, process
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.signals.holders.judge import TRACKS_MAX, HolderJudge

SPAWNED = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")
SERVED = "its parent, process 9, died; it is now a child of process 1"


def service(**fields):
    return process(7, "python", "embed.py", **fields)


def script(**fields):
    return process(7, "python3", "explore.py", **({"cgroup": SESSION} | fields))


def pool(second, **fields):
    """A worker of multiprocessing whose program dies at second 300."""
    return process(7, *SPAWNED, ppid=9 if second < 300 else 1, cgroup=POD, **fields)


def at_300(one):
    """It works once, at second 300."""
    return lambda s: replace(one, sm_utilization_ratio=0.5 if s == 300 else 0.0)


def busy(make):
    """Half a core of work at any time."""
    return lambda s: replace(make(s), cpu_seconds=100.0 + s / 2)


UNREAD = {"cpu_seconds": None, "sm_utilization_ratio": None}
OBSERVED = " (since it was first seen)"
SAID = {  # it, at second → verdict and what is said, at that second
    "a kernel that never worked": (
        lambda _: kernel(), 1800, "stale", ("a notebook's kernel", f"no CPU or GPU work for 30 min{OBSERVED}")),
    "a kernel that worked once": (at_300(kernel()), 2100, "stale", ("a notebook's kernel", "no CPU or GPU work for 30 min")),
    "a kernel of which nothing is read": (
        lambda _: kernel(**UNREAD), 3600, "unknown", ("its CPU and GPU work cannot be read",)),
    "a shell's program": (
        lambda _: script(), 3600, "stale", ("started in a user's session, not as a service", f"no CPU or GPU work for 60 min{OBSERVED}")),
    "a shell's program that looks like a server": (
        lambda _: script(cmdline=("python3", "serve.py")), 3600, "unknown",
        ("no work was seen in 60 min; it seems to be a server, which may wait for requests",)),
    "a service": (lambda _: service(), 3600, "unknown", ("no work was seen in 60 min",)),
    "a service that worked once": (at_300(service()), 2400, "active", ("it last worked 35 min ago",)),
    "a pool's worker without its program": (pool, 900, "stale", (SERVED, "it has used no GPU time for 15 min")),
    "a pool's worker without its program for less than ten minutes": (
        pool, 600, "unknown", ("no work was seen in 10 min; that is significant only after 60 min",)),
    "a pool's worker without its program that works on the CPU": (busy(pool), 3600, "active", ("it works",)),
}  # fmt: skip


@pytest.mark.parametrize(("at", "second", "verdict", "said"), SAID.values(), ids=SAID)
def test_what_is_said_of_it(at, second, verdict, said):
    """Whether it works, since when it does not, and what that is worth."""
    (one,) = look_on(lambda s: gpu(at(s), utilization_ratio=None), seconds=second, step=300)
    (holder,) = one.holders
    assert (holder.judged.verdict, holder.judged.evidence) == (verdict, said)


def test_so_many_processes_are_remembered():
    """A broken driver's answer fills no memory: whoever comes after is seen, each time for the first time."""
    assert TRACKS_MAX == 4096  # 16 GPUs with 256 processes each
    many = gpu(*(ProcessSample(pid=pid) for pid in range(1, TRACKS_MAX)), index=1)
    two, judge = gpu(kernel(5001), kernel(5002)), HolderJudge()
    judge.look(0.0, T, (many, two))
    (one,) = judge.look(60.0, T + 60, (two,))
    words = [each.judged.evidence[0].partition(";")[0] for each in one.holders]
    assert words == ["no work was seen in 60 s", "its CPU and GPU work cannot be read"]


def test_the_account_of_a_gpu_that_is_gone_goes_with_it():
    """What is there when it is back may be another's."""
    over, judge = gpu(core(), extra_gib=5), HolderJudge()
    other = gpu(core(5), index=1)
    at = lambda s: other if s == 100 else (over, other)  # noqa: E731
    first, _ = look_on(at, seconds=200, step=10, judge=judge)
    assert (first.unaccounted.verdict, first.unaccounted_bytes) == ("unknown", 5 * GIB)
    stays, _ = look_on(lambda _: (over, other), seconds=200, step=10)
    assert stays.unaccounted.verdict == "stale"
