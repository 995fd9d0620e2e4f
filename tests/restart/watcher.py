"""A watcher that kills itself where it is told to: one request, one real attempt, a point at every boundary.

`python -m tests.restart.watcher` reads a line of JSON {"folder", "point"} and forks a watcher for it, on a
journal, a lock and a hook that are real; then it says how that one ended. A point is passed before and
after every write of the journal and every call of hook, lock, targets and evidence, and at each step of the hook's
own script; all are listed in the folder's file `points`, so none has to be known beforehand.
With {"fault"} the disk breaks at that point instead (see Disk), until the attempt is over; with {"dies"}
the watcher is killed then, before the disk is mended. Tests begin watchers with Watchers.
"""

import asyncio
import errno
import inspect
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.restart.world import (
    CALLED,
    END,
    LOCKED,
    REQUEST,
    START,
    TARGET,
    Backends,
    Forking,
    Server,
    World,
    command,
)
from vllm_watch.restart import dispatcher as dispatcher_module
from vllm_watch.restart import restart, verify
from vllm_watch.restart.controls import Controls
from vllm_watch.restart.dispatcher import Dispatcher
from vllm_watch.restart.hooks.base import HookCall, HookResult
from vllm_watch.restart.hooks.command import Hook as CommandHook
from vllm_watch.restart.locks.file import Lock
from vllm_watch.state import file
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal


class Watchers(Forking):
    """One watcher after the other."""

    def __init__(self, **environ: str) -> None:
        super().__init__("-m", "tests.restart.watcher", **environ)

    def run(
        self, server: Server, point: str, fault: str | None = None, *, dies: bool = False
    ) -> int:
        """Run one to its end; return its exit status."""
        return self.asked(folder=str(server.folder), point=point, fault=fault, dies=dies)


def on_disk(folder: Path) -> tuple[Attempt, ...]:
    """The attempts that a next watcher would find."""
    return asyncio.run(_attempts(folder / "state"))


async def _attempts(folder: Path) -> tuple[Attempt, ...]:
    folder.mkdir(exist_ok=True)
    journal = Journal(folder)
    try:
        return await journal.attempts()
    finally:
        await journal.close()


# Call 1 does nothing and asks for another; call 2 restarts. Each step is a point.
SCRIPT = f"""
point() {{
  echo "hook $1" >> points; [ "$(cat point)" = "hook $1" ] || return 0
  kill -9 "$(cat watcher.pid)"; sleep 30
}}
{CALLED}; n=$(wc -l < called); point "called $n"; [ "$n" -gt 1 ] || exit 75
{END}; point "ended $n"; {START}; point "started $n"
"""

# Another rank of its gang, whose folder is in the first one's: its one call restarts it.
MATE_SCRIPT = f"""
point() {{
  echo "mate $1" >> ../points; [ "$(cat ../point)" = "mate $1" ] || return 0
  kill -9 "$(cat ../watcher.pid)"; sleep 30
}}
{CALLED.replace("watcher.pid", "../watcher.pid")}; point called
{END}; point ended; {START}; point started
"""

LOCK_SECONDS = 1.5
WATCHED_SECONDS = 40.0


class Disk:
    """What the journal is on: it can be full, or fail every write and flush with an error."""

    def __init__(self, folder: Path, fault: str) -> None:
        self._filler = folder / "state" / "filler"
        self._armed = folder / "fault"  # read by failing_disk.c
        self._fault = fault

    def fail(self) -> None:
        if self._fault != "ENOSPC":
            self._armed.write_text(str(getattr(errno, self._fault)))
            return
        with suppress(OSError), self._filler.open("ab", buffering=0) as filler:
            while True:
                filler.write(bytes(1024))

    def mend(self) -> None:
        self._armed.unlink(missing_ok=True)
        self._filler.unlink(missing_ok=True)


class Points:
    """Where the watcher is."""

    def __init__(self, folder: Path, last: str, disk: Disk | None) -> None:
        self._file = folder / "points"
        self._last = last
        self._disk = disk
        self._passed: Counter[str] = Counter()

    def __call__(self, name: str) -> None:
        self._passed[name] += 1
        point = f"{name} {self._passed[name]}"
        with self._file.open("a") as passed:
            passed.write(f"{point}\n")
        if point != self._last:
            return
        if self._disk is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self._disk.fail()

    def around(self, name: str, what: Any) -> Any:
        """The same thing, with a point before and after each call that waits."""
        return _Around(self, name, what)


class _Around:
    def __init__(self, points: Points, name: str, what: Any) -> None:
        self._points, self._name, self._what = points, name, what

    def __getattr__(self, call: str) -> Any:
        found = getattr(self._what, call)
        if not inspect.iscoroutinefunction(found):
            return found

        async def called(*words: Any, **named: Any) -> Any:
            self._points(f"before {self._name}.{call}")
            result = await found(*words, **named)
            self._points(f"after {self._name}.{call}")
            return result

        return called


class PointedJournal(Journal):
    """Every write, whatever it is for, is two points."""

    def __init__(self, folder: Path, points: Points) -> None:
        super().__init__(folder)
        self._points = points
        self.written: list[tuple[str, str]] = []  # ids and states of attempts

    async def _do(self, work: Any, *, writes: bool = True) -> Any:
        if not writes:
            return await super()._do(work, writes=False)
        self._points("before write")
        done = await super()._do(work)
        self._points("after write")
        return done

    async def write(self, attempt: Attempt) -> None:
        await super().write(attempt)
        self.written.append((attempt.id, attempt.state))


class WitnessedHook(CommandHook):
    """Looks, just before it acts, at what a next watcher would find on the disk."""

    def __init__(self, hook: CommandHook, folder: Path) -> None:
        self.__dict__ = hook.__dict__
        self._folder = folder

    async def restart(self, call: HookCall) -> HookResult:
        path = self._folder / "state" / file.NAME
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            (state,) = db.execute(
                "SELECT state FROM attempt WHERE id = ?", (call.attempt_id.split("-")[0],)
            ).fetchone()
        with (self._folder / "on_disk").open("a") as found:
            found.write(f"{state}\n")
        return await super().restart(call)


async def watch(folder: Path, point: str, fault: str | None, *, dies: bool) -> None:
    """Take up what is there, ask for a restart, and go on until nothing is left to do."""
    (folder / "watcher.pid").write_text(str(os.getpid()))
    (folder / "point").write_text("" if fault else point)
    (folder / "state").mkdir(exist_ok=True)
    disk = Disk(folder, fault) if fault else None
    points, server = Points(folder, point, disk), Server(folder)
    journal = PointedJournal(folder / "state", points)
    world = World(server, LOCKED, fresh_ratio=None, look_seconds=0.1)
    hook = points.around("hook", WitnessedHook(command(server, SCRIPT), folder))
    lock = points.around("lock", Lock(folder, "chat", slots=1, ttl_seconds=LOCK_SECONDS))
    backends = Backends(lambda: hook, lambda: lock, holder=f"watcher {os.getpid()}")
    mate = Server(folder / "mate")
    if mate.folder.exists():
        world.add_mate(mate)
        witnessed = WitnessedHook(command(mate, MATE_SCRIPT), folder)
        backends.others["mate"] = points.around("hook", witnessed)
    dispatcher = Dispatcher(
        points.around("targets", world.targets), journal, Controls(journal, "1"), backends,
        points.around("evidence", world.evidence),
    )  # fmt: skip
    await dispatcher.resume()
    dispatcher.submit(REQUEST)
    running = asyncio.create_task(dispatcher.run())
    try:
        async with asyncio.timeout(WATCHED_SECONDS):
            checks = await _until_over(dispatcher, world)
            broken = _snapshot(dispatcher, server)
            if disk is not None:
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                disk.mend()
                await _until_settled(dispatcher, journal)
    finally:
        running.cancel()
        await dispatcher.attempts.stop()
        await journal.close()
    report = {"checks": checks, "written": journal.written, "broken": broken}
    (folder / "report").write_text(json.dumps(report))


def _snapshot(dispatcher: Dispatcher, server: Server) -> dict[str, Any]:
    """What is so while the disk is broken, if it is."""
    last = dispatcher.attempts.ledger.last(TARGET.name)
    return {
        "state": last and last[0].state,
        "called": len(server.lines("called")),
        "waiting": len(dispatcher.waiting(TARGET.name)),
    }


async def _until_settled(dispatcher: Dispatcher, journal: Journal) -> None:
    """Wait until the request is carried out and the disk says how everything ended."""
    while True:
        over = dispatcher.attempts.ledger.busy.get(TARGET.name) is None
        if over and not dispatcher.waiting(TARGET.name):
            kept = await journal.attempts()
            if kept and not any(each.open for each in kept):
                return
        await asyncio.sleep(0.05)


async def _until_over(dispatcher: Dispatcher, world: World) -> list[str]:
    """Wait; return what stood against the request when it was first decided about."""
    checks: list[str] | None = None
    while True:
        world.change.clear()
        waiting = dispatcher.waiting(TARGET.name)
        decision = waiting[0].decision if waiting else None
        if decision is not None and checks is None:
            checks = list(decision.refusals)
        waits = waiting and (decision is None or decision.check in ("lock", "under_way"))
        if not waits and dispatcher.attempts.ledger.busy.get(TARGET.name) is None:
            return checks or []
        await world.change.wait()


def quick() -> None:
    """What takes seconds in life takes a part of one here."""
    dispatcher_module.ASK_SECONDS = 0.1
    dispatcher_module.AGAIN_SECONDS = 0.3
    restart.RETRY_SECONDS = 0.05
    verify.STOP_SECONDS = 0.5


def main() -> None:
    quick()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            with (Path(asked["folder"]) / "log").open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.environ["FAILING_DISK"] = str(Path(asked["folder"]) / "fault")
            folder, fault = Path(asked["folder"]), asked["fault"]
            asyncio.run(watch(folder, asked["point"], fault, dies=asked["dies"]))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
