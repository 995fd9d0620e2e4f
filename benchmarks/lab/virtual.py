"""The lab without sockets and without waiting: a story as the observations that looking at it gives."""

from collections.abc import Iterator

from vllm_watch.lab.reading import read
from vllm_watch.lab.stories import STORIES
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Call, Observation, ProcessState

EPOCH = 1_800_000_000.0
"""Unix time at which every story in virtual time begins: the same for the same seed, always."""

READ_TIMEOUT_SECONDS = 10.0
_FIRST_PID = 4000
_OK = Call(outcome="ok", status=200, latency_s=0.003)
_REFUSED = Call(outcome="refused", error="connection refused", latency_s=0.0004)
_SILENT = Call(
    outcome="read_timeout", error="no answer within 10 s", latency_s=READ_TIMEOUT_SECONDS
)
_UNHEALTHY = Call(outcome="http", status=503, error="HTTP 503", latency_s=0.002)


def observe(vllm: SimulatedVllm, gpus: tuple[GpuSample, ...] | None = None) -> Observation:
    """Look at a server at its present time."""
    reading = None
    if not vllm.serving:
        scrape = health = _REFUSED
    elif vllm.api_hung:
        scrape = health = _SILENT
    else:
        scrape, health = _OK, _UNHEALTHY if vllm.dead else _OK
        reading = read(vllm)
    return Observation(
        t=vllm.epoch + vllm.t, monotonic_s=vllm.t, target=vllm.name,
        scrape=scrape, health=health, reading=reading, gpus=gpus,
        process=_process(vllm) if vllm.process_seen else None,
    )  # fmt: skip


def _process(vllm: SimulatedVllm) -> ProcessState:
    """The newest process of this server, be it gone."""
    return ProcessState(
        pid=_FIRST_PID + vllm.incarnation,
        start_time=vllm.epoch + vllm.process_start_t,
        alive=vllm.alive,
    )


def observations(
    story: str, duration_s: float, interval_s: float = 5.0, seed: int = 1
) -> Iterator[Observation]:
    """All targets of a story in time order, each looked at every `interval_s`, spread over it.

    Deterministic: the same arguments give equal records. Raises KeyError for a story that there is not.
    """
    scene = STORIES[story].build(seed)
    scene.begin_at(EPOCH)
    servers = list(scene.servers.values())
    looks = 0
    while True:
        for number, server in enumerate(servers):
            t = (looks + number / len(servers)) * interval_s
            if t >= duration_s:
                return
            scene.play(t)
            server.advance(t)
            yield observe(server, scene.rack.sample() if scene.rack else None)
        looks += 1
