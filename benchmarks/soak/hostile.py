"""One engine of the site that means harm: its bodies go as bytes through the real reader of HTTP and of metrics."""

from random import Random

from benchmarks.lab.hostile import MIXED, packed
from benchmarks.soak.virtual_time import Clock
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources.http import Answer
from vllm_watch.sources.http_messages import ResponseReader
from vllm_watch.sources.vllm import Look, VllmSource

NAME = "hostile"

EVERY = 30
"""One look in so many meets a body, each of which takes half a second of CPU; the others are refused."""

_REFUSED = Call(outcome="refused", error="connection refused: nothing listens there")
_PIECE_BYTES = 64 << 10


class HostileSource:
    """Looks at it as VllmSource does, but for the socket."""

    local = False

    def __init__(self, clock: Clock, target: Target, settings: ScrapeSettings) -> None:
        self.target = target
        self.bodies = 0
        self._clock, self._bytes_max, self._looks = clock, settings.body_bytes_max, 0
        self._rng = Random(f"hostile {target.name}")
        self._real = VllmSource(target, settings, None)  # type: ignore[arg-type] # it asks nobody

    async def observe(self) -> Look:
        """Look once."""
        call, reading, body = _REFUSED, None, None
        if self._looks % EVERY == 0:
            self.bodies += 1
            call, reading, body = self._real._read(self._answer())
        self._looks += 1
        seen = Observation(
            t=self._clock.unix(), monotonic_s=self._clock.monotonic(), target=self.target.name,
            scrape=call, health=None, reading=reading,
        )  # fmt: skip
        lines, self._real._reader.lines = self._real._reader.lines, None
        return Look(seen, body, (("metrics", call),), lines if body is not None else None)

    def _answer(self) -> Answer:
        said, headers = packed(MIXED, self._rng)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sent = f"HTTP/1.1 200 OK\r\nContent-Length: {len(said)}\r\n{head}\r\n".encode() + said
        reader = ResponseReader()
        reader.expect(self._bytes_max)
        for at in range(0, len(sent), _PIECE_BYTES):
            reader.feed(sent[at : at + _PIECE_BYTES])
            if reader.ended:
                break
        wrong, body = reader.error, reader.body()
        reader.close()
        if wrong is not None:
            return Answer(Call(outcome=wrong[0], error=wrong[1]))
        return Answer(Call(outcome="ok", status=200), body, "text/plain")
