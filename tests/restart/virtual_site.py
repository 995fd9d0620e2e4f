"""Three engines of one group, one watcher after the other over them, and all that may be done to them; in virtual time.

What must never happen is judged by virtual_oracle.py, at each call and after each step.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.restart import virtual_oracle as oracle
from tests.restart.virtual import BEGIN_T, CLOCK, Loop
from tests.restart.virtual_engines import HANGS, Engine, Found, Process
from tests.restart.virtual_oracle import RESTART, SCHEDULE_SECONDS, UPTIME_SECONDS
from tests.restart.virtual_watcher import Watcher
from vllm_watch.config import Config
from vllm_watch.errors import JournalError
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.restart.hooks.base import HookCall, HookResult
from vllm_watch.restart.locks import file as file_lock
from vllm_watch.restart.operators import OK
from vllm_watch.state.attempt import Attempt
from vllm_watch.support.token_file import Caller

ANNA = Caller(actor="anna", source="127.0.0.1")
URLS = {name: f"http://10.0.0.{number}:8000" for number, name in enumerate("abcd", 1)}
SETTLE_SECONDS = 240.0
"""Longer than a lease, a verification, a cooldown and each pause before the next asking together."""


@dataclass
class Made:
    """One call of the hook."""

    attempt: str
    target: str
    at_s: float
    t: float
    watcher: Watcher
    process: Process | None
    outcome: str | None = None  # None: it has not said


@dataclass
class Settings:
    """What the configuration says, before it is made one."""

    mode: str = "auto"
    urls: dict[str, str] = field(default_factory=lambda: {n: URLS[n] for n in "abc"})
    hook: str = "1"
    frozen_s: float | None = None  # from the reload on
    scheduled: bool = True
    peers: str = "watched"

    def config(self, folder: Path, freeze: tuple[float, float] | None = None) -> Config:
        restart = {**RESTART, "mode": self.mode, "peers": self.peers}
        if freeze is not None:
            begin, end = (datetime.fromtimestamp(t, UTC).isoformat() for t in freeze)
            restart["freezes"] = [{"begin": begin, "end": end}]
        if self.scheduled:
            restart["schedules"] = [{
                "name": "often", "interval_seconds": SCHEDULE_SECONDS, "uptime_seconds_min": UPTIME_SECONDS,
                "misfire_seconds": 240,
            }]  # fmt: skip
        return Config.model_validate(
            {
                "state_dir": str(folder / "state"), "gpu": {"enabled": "off"}, "canary": {"enabled": False},
                "targets": [{"name": n, "url": u, "group": "g"} for n, u in self.urls.items()],
                "restart": restart, "api": {"tokens": [{"name": "anna", "file": str(folder / "token")}]},
                "hooks": {"command": [{"name": "h", "argv": ["/bin/true", self.hook], "timeout_seconds": 20}]},
            },
            context={"folder": folder},
        )  # fmt: skip


class Site:
    """All of it. `broken` is what must not have happened, in words."""

    def __init__(self, folder: Path, due_in_s: float = 300.0) -> None:
        CLOCK.reset()
        self.due(due_in_s)
        self.folder = folder
        (folder / "token").write_text("a-token-of-enough-characters")
        (folder / "token").chmod(0o600)
        self.broken: list[str] = []
        self.settings = Settings()
        self.config = self.settings.config(folder)
        self.freeze: tuple[float, float] | None = None
        self.engines = {name: Engine(url) for name, url in URLS.items()}
        twins_t = CLOCK.time() - 1000.0
        for number, engine in enumerate(self.engines.values()):
            # All but the first started in the same 10 ms.
            engine.start(start_t=twins_t - max(0, 1 - number))
        self.watcher: Watcher | None = None
        self.stops = False  # is the watcher asked to?
        self.resumed_s = 0.0
        self.outage = False
        # Targets that the outage hit all at once, each of them well.
        self.common: frozenset[str] = frozenset()
        self.hook_does, self.supervised = "restarts", False
        self.last: dict[str, Found] = {}  # by target: the last scrape
        self.seen: dict[str, Process] = {}  # by target: the last process that answered
        self.wrote: dict[str, Attempt] = {}  # as the disk has it
        # By attempt and target: who it may be of; by attempt: of whom nothing answered as it was decided.
        self.decided: dict[str, dict[str, list[Process | None]]] = {}
        self.silent: dict[str, set[str]] = {}
        self.calls: list[Made] = []
        self.asked: dict[str, tuple[float, str]] = {}  # by alert: when, of whom
        self.approved: set[str] = set()  # incidents
        self.silenced: set[str] = set()
        self.paused = False
        self.page_s: dict[str, float] = {}  # by target: when it was last paged for
        self.kill_at: tuple[str, int] | None = None
        self.passed: list[str] = []  # points, so that a story can be read
        self._other_lock: file_lock.Lock | None = None
        self.lost_s: float | None = None  # since when the lock is another's

    def due(self, in_s: float) -> None:
        """A schedule falls due so soon; before the watcher starts."""
        CLOCK.ahead_s = 0.0
        CLOCK.ahead_s = (BEGIN_T // SCHEDULE_SECONDS + 5) * SCHEDULE_SECONDS - in_s - CLOCK.time()

    # --- what the watcher meets

    def engine(self, url: str) -> Engine | None:
        return next((each for each in self.engines.values() if each.url == url), None)

    def of(self, target: str) -> Engine | None:
        """The engine that a target's name means by the configuration that holds."""
        url = self.settings.urls.get(target)
        return None if url is None else self.engine(url)

    def scraped(self, target: str, found: Found) -> None:
        self.last[target] = found
        if found.process is not None:
            self.seen[target] = found.process

    def told(self, events: Sequence[IncidentEvent]) -> None:
        for event in events:
            incident = event.incident
            if incident.severity == "page" and incident.firing and incident.open:
                self.page_s[incident.target] = CLOCK.monotonic_s
                self.broken += oracle.of_page(self, incident)

    async def point(self, name: str) -> None:
        """A moment at which the watcher may be killed."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.check()
        self.passed.append(name)
        if self.kill_at is not None and self.kill_at[0] == name:
            left = self.kill_at[1]
            self.kill_at = (name, left - 1) if left else None
            if not left:
                loop.kill()
                await loop.create_future()

    async def written(self, attempt: Attempt) -> None:
        """The disk has it now."""
        before = self.wrote.get(attempt.id)
        self.wrote[attempt.id] = attempt
        self.broken += oracle.of_write(self, before, attempt)
        if attempt.state == "intent":
            silent = (each for each in attempt.names if not self._answered(each))
            self.silent[attempt.id] = set(silent)
            self.decided[attempt.id] = {
                name: [self.seen.get(name), self.last[name].met if name in self.last else None] for name in attempt.names
            }  # fmt: skip

    def _answered(self, target: str) -> bool:
        return target in self.last and self.last[target].process is not None

    def called(self, call: HookCall, settings: Any) -> Engine | None:
        self.passed.append("called")
        engine = self.engine(call.url)
        process = None if engine is None else engine.process
        assert self.watcher is not None
        made = Made(
            call.attempt_id, call.target, CLOCK.monotonic_s, CLOCK.time(), self.watcher, process
        )
        self.broken += oracle.of_call(self, call, settings, made)
        self.calls.append(made)
        return engine

    def answered(self, call: HookCall, result: HookResult) -> HookResult:
        self.calls[-1].outcome = result.outcome
        return result

    def cut_off(self, call: HookCall) -> None:
        """The hook was ended in the middle."""
        if self.stops and self.watcher is not None and not self.watcher.dead:
            self.broken.append(f"a hook that had begun was cut off in the middle: {call.target}")

    # --- what is done

    def passes(self, seconds: float) -> None:
        """Time, with whoever runs."""
        if seconds and self.watcher is None:
            CLOCK.pass_unseen(seconds)
        elif seconds:
            self._run(asyncio.sleep(seconds))
        self.broken += oracle.of_board(self)

    def _run(self, work: Any) -> Any:
        assert self.watcher is not None
        result = self.watcher.run(work)
        if self.watcher.dead:
            self.watcher = None
        return result

    def start(self) -> None:
        self.watcher = Watcher(self, self.folder / "state")
        self._run(self.watcher.start())

    def kill(self) -> None:
        assert self.watcher is not None
        self.watcher.loop.killed = True
        self.watcher.bury()
        self.watcher = None

    def stop(self) -> None:
        watcher = self.watcher
        assert watcher is not None
        self.stops = True
        self._run(watcher.stop())
        self.stops = False
        if self.watcher is not None:
            watcher.bury()
            self.watcher = None

    def reload(self, change: Mapping[str, Any]) -> None:
        for key, value in change.items():
            setattr(self.settings, key, value)
        frozen_s, now_t = self.settings.frozen_s, CLOCK.time() // 1
        self.freeze = None if frozen_s is None else (now_t, now_t + frozen_s)
        self.config, self.common = self.settings.config(self.folder, self.freeze), frozenset()
        gone = self.last.keys() - self.settings.urls.keys()
        for name in gone:
            self.last.pop(name), self.seen.pop(name, None)
        if self.watcher is not None:
            self._run(self.watcher.reload(self.config))

    def ask(self, work: Any) -> Any:
        """What the API answers a person, or a machine; None: that it cannot be written down, or nothing."""
        try:
            return self._run(asyncio.wait_for(work, 300.0))
        except JournalError:
            return None

    @property
    def operators(self) -> Any:
        assert self.watcher is not None
        return self.watcher.restarts.operators

    def person(self, target: str) -> None:
        if self.watcher is not None:
            self.ask(self.operators.restart(ANNA, target, "wanted", None))

    def hang(self, target: str) -> None:
        self.engines[target].sicken(HANGS)
        self.passes(6.0)  # until it is found

    def alert(self, target: str, *, firing: bool = True) -> None:
        if self.watcher is None:
            return
        alert = {
            "status": "firing" if firing else "resolved", "labels": {"alertname": "Slow", "target": target},
            "fingerprint": f"f{target}", "startsAt": "2026-09-21T00:00:00Z",
        }  # fmt: skip
        reply = self.ask(self.operators.alerts(ANNA, {"version": "4", "alerts": [alert]}))
        if not firing:
            self.asked.pop(target, None)
        elif reply is not None and reply[1]["asked"]:
            self.asked[target] = CLOCK.monotonic_s, target

    def waiting(self) -> list[str]:
        """Incidents whose restart waits."""
        assert self.watcher is not None
        dispatcher = self.watcher.restarts.dispatcher
        waits = (each.request for name in self.settings.urls for each in dispatcher.waiting(name))
        return [each.incident_id for each in waits if each.incident_id is not None]

    def approve(self, incident: str) -> None:
        if self.watcher is None:
            return
        self.approved.add(incident)  # a yes that is on its way may be acted on
        self.ask(self.operators.approve(ANNA, incident))

    def silence(self, incident: str) -> None:
        if self.watcher is None:
            return
        reply = self.ask(self.operators.silence(ANNA, incident, "no", 600.0))
        if reply is not None and reply[0] == OK:
            self.silenced.add(incident)

    def pause(self, *, paused: bool) -> None:
        if self.watcher is None:
            return
        if paused:
            self.paused = (
                self.ask(self.operators.pause(ANNA, "work", None)) is not None or self.paused
            )
        else:
            self.paused = False  # from here on it may or may not hold
            self.resumed_s = CLOCK.monotonic_s
            self.ask(self.operators.resume(ANNA, "done"))

    def network(self, *, fails: bool) -> None:
        """Nobody is heard, or everybody again."""
        if fails and not self.outage:
            fresh_s = CLOCK.monotonic_s - 10.0
            well = [
                name
                for name in self.settings.urls
                if (engine := self.of(name)) is not None and engine.serves
                if (last := self.last.get(name)) is not None
                if last.process is engine.process and not last.sick and last.began_s > fresh_s
            ]
            all_well = self.watcher is not None and len(well) == len(URLS) - 1
            self.common = frozenset(well if all_well else ())
        elif not fails:
            self.common = frozenset()
        self.outage = fails

    def take_lock(self) -> bool:
        """Another watcher has it, once it is free."""
        folder = self.folder / "state" / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        lock = file_lock.Lock(folder, "vllm-watch", slots=1, ttl_seconds=30)
        held = lock._change("another watcher", "theirs")
        if held.held:
            self._other_lock = lock
        return held.held is True

    def lose_lock(self) -> None:
        """Somebody removes its file, and another watcher takes it."""
        (self.folder / "state" / "locks" / "vllm-watch.lock.json").unlink(missing_ok=True)
        self.take_lock()
        self.lost_s = CLOCK.monotonic_s

    def give_lock_back(self) -> None:
        lock, self._other_lock, self.lost_s = self._other_lock, None, None
        if lock is not None and lock._mine is not None:
            lock._give_back(lock._mine, 0.0, used=False)

    def settle(self) -> None:
        """Take away whatever stood in the way: who is still sick is restarted or paged for."""
        self.kill_at = None
        self.network(fails=False)
        self.give_lock_back()
        self.reload({"frozen_s": None, "mode": "auto"})
        if self.watcher is None:
            self.start()
        assert self.watcher is not None
        self.watcher.worker.full = False
        self.pause(paused=False)
        calls, waited_s = len(self.calls), 0.0
        while [*oracle.of_the_sick(self)] or [*oracle.to_restart(self)]:
            if waited_s > SETTLE_SECONDS:
                self.broken += oracle.of_the_sick(self)
                self.broken += (
                    f"{name} is sick, and nobody restarts it" for name in oracle.to_restart(self)
                )
                break
            if len(self.calls) > calls:
                calls, waited_s = len(self.calls), 0.0
            self.passes(5.0)
            waited_s += 5.0

    @property
    def others_hold(self) -> bool:
        """Has another watcher a lease that is not over?"""
        return self._other_lock is not None and CLOCK.monotonic_s < self._other_lock._until_s

    def close(self) -> None:
        if self.watcher is not None:
            self.kill()
