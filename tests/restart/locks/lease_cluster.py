"""A small Kubernetes API server with one lease, and watchers that ask it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes_api import NAMESPACE, FakeKubernetes
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
