"""A dispatcher over a small world (world.py), for stories about requests."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.restart.world import REQUEST, SETTINGS, Backends, Server, World, command
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.decider import PendingRequest
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.facts import Answer, RestartRequest
from vllm_watch.restart.guard import Decision
from vllm_watch.restart.hooks.base import HookCall, HookResult
from vllm_watch.restart.hooks.command import Hook as CommandHook
from vllm_watch.restart.locks.base import Held, Lock
from vllm_watch.restart.locks.file import Lock as FileLock
from vllm_watch.settings.restart import BlockersSettings, LockSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal

FREE = Answer(name="prometheus", allows=True, text="none fires")
FIRES = Answer(name="prometheus", allows=False, text="NodeDown fires")
PERSON = replace(REQUEST, trigger="manual", actor="ana", incident_id=None)


def file_lock(server: Server) -> Callable[[], Lock]:
    """Locks of watchers that share one slot."""
    return lambda: FileLock(server.folder, "chat", slots=1, ttl_seconds=60)


class Asked(CommandHook):
    """The real hook, whose questions are noted; it may have a reason against being called."""

    def __init__(self, story: "Story") -> None:
        self.__dict__ = command(story.server, story.script, story.timeout_seconds).__dict__
        self._story = story

    async def refusal(self, call: HookCall) -> str | None:
        self._story.asked.append("hook")
        self._story.world.told.append("asked")
        if self._story.hook_breaks is not None:
            await self._story.hook_breaks()
        return self._story.refusal

    async def restart(self, call: HookCall) -> HookResult:
        self._story.world.told.append("hook")
        self._story.calls.append(call)
        return await super().restart(call)


class Noting(Journal):
    """The journal on disk, whose writes are noted in order with all else."""

    def __init__(self, folder: Path, told: list[str]) -> None:
        super().__init__(folder)
        self._told = told

    async def write(self, attempt: Attempt) -> None:
        await super().write(attempt)
        self._told.append(attempt.state)


class AskedLock:
    def __init__(self, story: "Story", lock: Lock) -> None:
        self._story, self._lock = story, lock
        self.ttl_seconds = lock.ttl_seconds

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        self._story.asked.append("lock")
        return await self._lock.acquire(holder, attempt_id, attempt)

    async def renew(self, attempt: Attempt | None = None) -> Held:
        return await self._lock.renew(attempt)

    def still_ours(self) -> bool:
        return self._lock.still_ours()

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        self._story.asked.append("lock given back")
        await self._lock.release(delay_seconds, used=used, ended=ended)


@dataclass
class Story:
    """One watcher; what is asked is noted in order."""

    server: Server
    script: str = "restarts"
    timeout_seconds: float = 20.0
    hook: type[Asked] = Asked
    calls: list[HookCall] = field(default_factory=list)
    mode: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None
    hook_breaks: Callable[[], Any] | None = None
    answers: list[Answer] = field(default_factory=list)  # of the blockers, in turn; the last stays
    lock: Callable[[], Lock] | None = None
    holder: str = "us"
    folder: str = "state"
    asked: list[str] = field(default_factory=list)
    known: bool = True  # is the hook configured?

    def __post_init__(self) -> None:
        state = self.server.folder / self.folder
        state.mkdir(exist_ok=True)
        settings: dict[str, Any] = {"mode": self.mode}
        if self.lock is not None:
            settings["lock"] = LockSettings(kind="file")
        if self.answers:
            settings["blockers"] = BlockersSettings(prometheus_url="http://p", alerts="NodeDown")
        self.world = World(self.server, SETTINGS.model_copy(update=settings | self.settings))
        self.journal = Noting(state, self.world.told)
        self.controls = Controls(self.journal, "1")
        backends = self.backends = Backends(
            lambda: self.hook(self) if self.known else None, self._new_lock, self._blockers, self.holder
        )  # fmt: skip
        self.dispatcher = Dispatcher(
            self.world.targets, self.journal, self.controls, backends, self.world.evidence
        )
        self._task: asyncio.Task[None] | None = None

    def _new_lock(self) -> Lock | None:
        return None if self.lock is None else AskedLock(self, self.lock())

    def _blockers(self) -> list[Answer]:
        self.asked.append("blockers")
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]

    async def __aenter__(self) -> "Story":
        await self.dispatcher.resume()
        self._task = asyncio.create_task(self.dispatcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.dispatcher.attempts.stop()
        await self.journal.close()

    def incident(self, **changed: Any) -> None:
        """Change what is known of the incident that asks."""
        self.world.incident(**changed)

    async def until(self, holds: Callable[[], Any], seconds: float = 20.0) -> None:
        """Wait until it holds; whatever could make it so says that something has changed."""
        async with asyncio.timeout(seconds):
            while not holds():
                self.world.change.clear()
                await self.world.change.wait()

    async def decided(self, request: RestartRequest = REQUEST) -> Decision:
        """Ask for it, and wait for the first decision."""
        self.dispatcher.submit(request)
        (pending,) = self.dispatcher.waiting("chat-0")
        return await self.decision(pending)

    async def decision(self, pending: PendingRequest) -> Decision:
        """Wait for the first decision."""
        await self.until(lambda: pending.decision is not None)
        assert pending.decision is not None
        return pending.decision

    async def over(self) -> Attempt:
        """Wait for the attempt to end."""
        await self.until(lambda: self.dispatcher.attempts.ledger.busy.get("chat-0") is None)
        last = self.dispatcher.attempts.ledger.last("chat-0")
        assert last is not None
        return last[0]

    async def fulfilled(self) -> Attempt:
        """Wait until nothing waits and nothing is under way."""
        await self.until(lambda: not self.dispatcher.waiting("chat-0"))
        return await self.over()

    async def asks(self, times: int) -> None:
        """Wait until so much more was asked."""
        before = len(self.asked)
        async with asyncio.timeout(20):
            while len(self.asked) < before + times:
                await asyncio.sleep(0.02)

    async def resumed(self) -> None:
        """A person says: try again."""
        await self.controls.reset_breakers(time.time())

    async def noted(self) -> list[Entry]:
        """What was written down about decisions."""
        return [each for each in await self.journal.entries() if each.action == "decision"]

    async def states(self) -> list[str]:
        """Of every attempt on the disk, oldest first."""
        return [each.state for each in await self.journal.attempts()]
