"""A small Kubernetes API server with one lease, and watchers that ask it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes_api import NAMESPACE, FakeKubernetes, certified
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks.lease import ANNOTATION, Lock, Shared
from vllm_watch.restart.locks.record import Limits

KEY = ("leases", NAMESPACE, "gpu")


class Cluster:
    """One API server, and watchers that ask it."""

    def __init__(self, server: FakeKubernetes, folder: Path) -> None:
        self.server, self.folder = server, folder

    def watcher(self, token: str | None = None) -> Shared:
        return Shared(self.server.api(self.folder, token), NAMESPACE, "gpu")

    def lock(
        self, watcher: Shared | None = None, *, slots: int = 1, ttl_seconds: float = 60.0,
        per_hour: int | None = None,
    ) -> Lock:  # fmt: skip
        return Lock(watcher or self.watcher(), Limits(slots=slots, per_hour=per_hour), ttl_seconds)

    @property
    def lease(self) -> dict[str, Any]:
        return self.server.objects[KEY]

    @property
    def record(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.lease["metadata"]["annotations"][ANNOTATION])
        return said


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    async with FakeKubernetes().running() as server:
        yield Cluster(server, folder / "pod")


async def until(asked: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Ask again and again, as the guard does."""
    async with asyncio.timeout(seconds):
        while (answer := await asked()).held is not True:
            await asyncio.sleep(0.2)
    return answer


def pod(here: Cluster) -> Tools:
    """The files and variables of a pod whose API server is ours."""
    host, _, port = here.server.url.removeprefix("https://").partition(":")
    (here.folder / "token").write_text(here.server.token)
    (here.folder / "namespace").write_text(NAMESPACE)
    return Tools(environ={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})


@asynccontextmanager
async def secure_cluster(folder: Path) -> AsyncIterator[Cluster]:
    _, context = certified(folder / "pod")
    async with FakeKubernetes().running(context) as server:
        yield Cluster(server, folder / "pod")
