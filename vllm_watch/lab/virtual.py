"""The lab without sockets and without waiting: a story as the observations that looking at it gives."""

from collections.abc import Iterator

from vllm_watch.lab.sampling import observe
from vllm_watch.lab.stories import STORIES
from vllm_watch.samples.observation import Observation

EPOCH = 1_800_000_000.0
"""Unix time at which every story in virtual time begins: the same for the same seed, always."""


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
