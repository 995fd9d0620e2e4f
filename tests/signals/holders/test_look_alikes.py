"""What looks stale and is not: for as long as anybody looks on."""

from dataclasses import replace

import pytest

from tests.signals.holders.series import (
    GIB,
    POD,
    SERVER,
    SESSION,
    core,
    gpu,
    kernel,
    look_on,
    only,
    process,
    verdicts,
    works,
)
from vllm_watch.samples.gpu import ProcessSample
from vllm_watch.signals.holders.judge import HolderJudge

TWO_HOURS = 7200


def training(second):
    """Ten minutes of waiting for the others, after each of work."""
    return gpu(
        process(
            7, "python3", "train.py", cgroup=SESSION,
            sm_utilization_ratio=0.9 if second % 660 < 60 else 0.0,
        )
    )  # fmt: skip


DAEMON = (
    "python3",
    "/usr/local/bin/vllm",
    "preload",
    "/models/llama",
    "--tensor-parallel-size",
    "2",
)
BORROWER = f"{SERVER} --load-format ipc_cache"
SPAWNED = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")


def preload(pid=7, command=DAEMON, **fields):
    """The weight daemon, started by hand in a session, a day ago; it computes nothing."""
    return process(pid, *command, **({"cgroup": SESSION} | fields))


LENDERS = {
    "vLLM's weight daemon": preload(),
    "as vLLM's next release may name it": preload(command=("vllm", "weight-cache-daemon", "--model", "m")),
    "a rank of it": preload(command=SPAWNED, ancestors=(" ".join(DAEMON), "bash")),
    "a rank of it with the title of a worker": preload(command=("VLLM::Worker_TP1",), ancestors=(" ".join(DAEMON),)),
    "stopped by a signal": preload(state="T"),
    "its container was removed": preload(cgroup="/docker/0123456789abcdef (deleted)"),
    "NVIDIA's GPU Memory Service": preload(command=("python3", "-m", "gpu_memory_service", "--device", "0")),
    "Mooncake's store": preload(command=("/usr/bin/mooncake_client", "-v")),
}  # fmt: skip


@pytest.mark.parametrize("lender", LENDERS.values(), ids=LENDERS)
def test_a_lender_of_memory_is_never_stale(lender):
    """Whether an engine maps its memory now or will at its next start."""
    alone = look_on(lambda _: gpu(lender), seconds=TWO_HOURS, step=20)
    assert only(alone) == ("active", None)
    beside = look_on(lambda _: gpu(lender, core(ancestors=(BORROWER,))), seconds=TWO_HOURS, step=20)
    assert verdicts(beside) == {7: ("active", None), 4711: ("vllm", None)}


def test_a_rank_of_a_weight_daemon_stays_one_after_its_parent():
    """It still answers on its socket."""

    def at(second):
        above = (" ".join(DAEMON), "systemd") if second < 60 else ("systemd",)
        return gpu(preload(command=SPAWNED, ppid=6 if second < 60 else 1, ancestors=above))

    assert only(look_on(at, seconds=TWO_HOURS, step=20)) == ("active", None)


@pytest.mark.parametrize(
    "server", [BORROWER, "python3 -m dynamo.vllm --load-format=gms --gms-shadow-mode"]
)
def test_what_an_engine_may_map_is_not_stale(server):
    """A launcher that we do not know beside an engine that maps memory; on another GPU it is judged as ever."""
    unknown = preload(command=("python3", "hold_weights.py"))
    elsewhere = gpu(preload(8, unknown.cmdline), index=1)
    at = lambda _: (gpu(unknown, core(ancestors=(server,))), elsewhere)  # noqa: E731
    judged = verdicts(look_on(at, seconds=TWO_HOURS, step=20))
    assert judged == {7: ("unknown", None), 8: ("stale", "idle_process"), 4711: ("vllm", None)}


def test_an_engine_that_a_shell_started_beside_a_daemon_is_no_daemon():
    """One script starts both, and its whole text is its command line; the engine's server is gone."""
    at = lambda s: gpu(core(ancestors=("bash -c vllm preload m & vllm serve m",)))  # noqa: E731
    assert only(look_on(at, seconds=200)) == ("stale", "orphaned_worker")


def test_a_shadow_engine_is_not_stale():
    """Dynamo's standby: asleep beside the engine whose weights it shares, in a session, and nobody asks it."""
    standby = "python3 -m dynamo.vllm --model m --load-format gms --gms-shadow-mode"
    shadow = core(9, ppid=8, cgroup=SESSION, gib=1.6, ancestors=(standby, "bash"), left_behind=True)
    itself = process(8, *standby.split(" "), cgroup=SESSION)
    at = lambda s: gpu(shadow, itself, core(ancestors=(SERVER,)))  # noqa: E731
    judged = verdicts(look_on(at, seconds=TWO_HOURS, step=20, served=True))
    assert set(judged.values()) == {("vllm", None)}


HIDDEN = ProcessSample(pid=83699, used_bytes=20 * GIB)
LOOK_ALIKES = {
    "a healthy core in a container, whose parent is process 1": (lambda s: gpu(core(ppid=1, cgroup=POD)), "vllm"),
    "a paused or sleeping engine": (lambda s: gpu(core(gib=1.6)), "vllm"),
    "a stopped engine": (lambda s: gpu(core(state="T")), "vllm"),
    "a loading engine in slow sleep": (lambda s: gpu(core(state="D", gib=1 + s / 1000)), "vllm"),
    "its launching shell died, not its server": (
        lambda s: gpu(core(ancestors=(SERVER, "bash") if s < 60 else (SERVER, "systemd"))), "vllm",
    ),
    "re-parented, and below a living server all the same": (
        lambda s: gpu(core(ppid=4700 if s < 60 else 812, ancestors=(SERVER,))), "vllm",
    ),
    "its launcher died and other API servers go on asking it": (
        lambda s: gpu(core(ppid=9 if s < 60 else 1, sm_utilization_ratio=0.3 * (s % 100 == 0))), "vllm",
    ),
    "below a service with a title of its own": (
        lambda s: gpu(core(ancestors=("inference-gateway: main", "systemd"), left_behind=False)), "vllm",
    ),
    "a worker of Ray's": (lambda s: gpu(process(5, "ray::RayWorkerWrapper", ancestors=("raylet", "bash"))), "vllm"),
    "a server that holds the memory itself": (
        lambda s: gpu(process(5, "python3", "-m", "vllm.entrypoints.openai.api_server")), "vllm",
    ),
    "a process of another PID namespace": (lambda s: gpu(HIDDEN), "unknown"),
    "a kernel that computes now and then": (
        lambda s: gpu(kernel(sm_utilization_ratio=0.2 if s % 400 == 0 else 0.0)), "active",
    ),
    "a kernel of which nothing can be read": (
        lambda s: gpu(kernel(cpu_seconds=None, sm_utilization_ratio=None), utilization_ratio=None), "unknown",
    ),
    "training between its steps": (training, "active"),
    "an idle service": (
        lambda s: gpu(process(7, "python", "embed.py", cgroup="/system.slice/embed.service")), "unknown",
    ),
    "an idle server in a user's session": (
        lambda s: gpu(process(7, "ollama", "runner", "--port", "41234", cgroup=SESSION)), "unknown",
    ),
    "the desktop": (lambda s: gpu(process(7, "/usr/lib/xorg/Xorg", ":0", type="graphics", cgroup=SESSION)), "active"),
    "a renderer that we do not know": (lambda s: gpu(process(7, "blender", type="graphics", cgroup=SESSION)), "active"),
    "the MPS server": (lambda s: gpu(process(7, "nvidia-cuda-mps-server")), "active"),
    "in a debugger": (lambda s: gpu(process(7, "python3", "train.py", state="t", cgroup=SESSION)), "unknown"),
    "slow sleep with work in between": (
        lambda s: gpu(works(process(7, "python3", "load.py", state="D"), s, cpu=0.05)), "active",
    ),
    "a process that takes and gives memory": (
        lambda s: gpu(process(7, "python3", "x.py", gib=4 + s // 600, cgroup=SESSION)), "active",
    ),
    "ended threads, others at work": (lambda s: gpu(works(process(7, "prog", state="Z"), s, cpu=0.5)), "active"),
    "a process group whose leader went, as a server's may": (
        lambda s: gpu(core(ancestors=(SERVER, "systemd"), left_behind=True)), "vllm",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("at", "verdict"), LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_look_alike(at, verdict):
    """Two hours of looks, and stale at none of them."""
    judge, seen = HolderJudge(), []
    for second in range(0, TWO_HOURS, 20):
        seen.append(only(look_on(at, seconds=0, judge=judge, start=second)))
    assert "stale" not in {word for word, _ in seen}
    assert seen[-1] == (verdict, None)


def test_a_re_parented_core_is_not_stale_while_somebody_answers_and_no_other_could():
    """A launcher of several API servers was killed: they go on, and the only core is theirs."""
    at = lambda s: gpu(core(ppid=9 if s < 60 else 1))  # noqa: E731
    assert only(look_on(at, seconds=600, served=True)) == ("vllm", None)
    assert only(look_on(at, seconds=600)) == ("stale", "orphaned_worker")


def test_another_healthy_vllm_on_the_same_gpu():
    """Two units that share a GPU, started an hour apart, each with its own server."""

    def at(second):
        one = core(1, ppid=10, cgroup="/system.slice/a.service")
        two = core(2, ppid=20, cgroup="/system.slice/b.service", create_time=one.create_time + 3600)
        return gpu(one, two)

    assert {word for word, _ in verdicts(look_on(at, seconds=TWO_HOURS, step=20)).values()} == {
        "vllm"
    }


def test_a_pid_that_was_given_again_has_nothing_of_its_predecessor():
    """A kernel was idle for long; its number is another's now."""

    def at(second):
        return gpu(kernel() if second < 1790 else kernel(create_time=kernel().create_time + 86000))

    assert only(look_on(at, seconds=1900))[0] != "stale"
    reparented = lambda s: gpu(  # noqa: E731
        core(ppid=9) if s < 60 else core(ppid=1, create_time=core().create_time + 86000)
    )
    assert only(look_on(reparented, seconds=600)) == ("vllm", None)


ACCOUNTS = {
    "what a driver and contexts take": lambda s: gpu(core(), extra_gib=0.9),
    "a holder of unknown size": lambda s: gpu(core(), replace(HIDDEN, used_bytes=None), memory_used_bytes=70 * GIB),
    "other tenants, not shown to a container": lambda s: gpu(core(cgroup=POD), extra_gib=40, processes_complete=False),
    "time-sliced pods, not shown": lambda s: gpu(core(cgroup=POD), extra_gib=s / 400),
    "nothing is listed at all": lambda s: gpu(extra_gib=40),
    "MPS": lambda s: gpu(core(mps=True), extra_gib=5),
    "a gap of a minute, while one loads": lambda s: gpu(core(), extra_gib=30 * (60 <= s < 150)),
    "a lost GPU": lambda s: gpu(lost=True, memory_used_bytes=None),
}  # fmt: skip


@pytest.mark.parametrize("at", ACCOUNTS.values(), ids=ACCOUNTS)
def test_memory_that_is_not_nobodys(at):
    """Two hours of looks, and never stale."""
    (one,) = look_on(at, seconds=TWO_HOURS, step=20)
    assert one.unaccounted.verdict != "stale"
    assert not one.stale


def test_slices_account_for_themselves():
    """A GPU with MIG slices: another tenant's are not nobody's."""

    def at(second):
        whole = gpu(core(gpu_instance_id=1), extra_gib=30)
        return whole, replace(
            gpu(core(gpu_instance_id=1), index=0), uuid="MIG-1", mig_parent_uuid=whole.uuid
        )

    whole, piece = look_on(at, seconds=600)
    assert (whole.unaccounted.verdict, piece.unaccounted.verdict) == ("unknown", "active")
    assert whole.unaccounted_bytes is None
