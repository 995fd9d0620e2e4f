"""The demo: a story in real time, as targets and a GPU source that a daemon can take for real ones."""

from vllm_watch.errors import WatchError
from vllm_watch.lab.gpus import SimulatedGpuSource
from vllm_watch.lab.live import Live
from vllm_watch.lab.stories import STORIES
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.target import Target


class Demo:
    """One story. `gpu_source` has the shape of the real one: `async read()` and `async close()`."""

    def __init__(self, story: str = "demo", speed: float = 1.0, seed: int = 1) -> None:
        """Raises WatchError for a story that there is not."""
        if story not in STORIES:
            known = ", ".join(STORIES)
            raise WatchError(f"there is no scenario {story!r}", f"Choose one of: {known}.")
        self._live = Live(STORIES[story].build(seed), speed)
        self.gpu_source = SimulatedGpuSource(self._live.scene.rack, self._live.unix_time)

    async def start(self) -> list[Target]:
        """Serve on ports of the loopback interface that are free. Raises ServeError if none are."""
        return await self._live.start()

    async def stop(self) -> None:
        await self.gpu_source.close()
        await self._live.stop()

    def engine(self, name: str) -> SimulatedVllm:
        """A server by its target's name, brought up to now: `demo.engine("chat").fault("hang")`."""
        self._live.advance()
        return self._live.scene[name]
