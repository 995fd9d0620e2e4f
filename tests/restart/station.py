"""Restarts in one event loop: the real wiring, journal, guard, hook and server; what engines do is said by the test."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import NoReturn

import aiohttp

from vllm_watch.board.board import Board, Looked
from vllm_watch.config import Config
from vllm_watch.errors import WatchError
from vllm_watch.export.evidence import Evidence
from vllm_watch.export.server import Server
from vllm_watch.export.status import Status
from vllm_watch.incidents.incident import Incident, IncidentEvent, ended
from vllm_watch.restart.restarts import Restarts
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.state.journal import Journal

TOKEN = "a-token-of-enough-characters"


async def _no_notifier(name: str) -> NoReturn:
    raise WatchError(f"There is no notifier {name!r}", "None is configured")


class Station:
    """Some targets (`a`, `b`, … in one group), all serving until told otherwise."""

    def __init__(self, config, folder):
        self.config = config
        self.board = Board()
        self.journal = Journal(folder) if config.state_dir else None
        self.logs = {}
        self.recorder = FlightRecorder(seconds=600, bytes_max_per_target=1 << 20)
        evidence = Evidence(self.board, self.recorder, self.logs)
        self.restarts = Restarts(config, self.board, evidence, self.journal)
        self.server = Server(
            self.board, host="127.0.0.1", port=0, ready=lambda: None, reload=self._reload,
            recording=self.recorder.dump,
            journal=None if self.journal is None else self.journal.told, operators=self.restarts.operators,
            gatekeeper=self.restarts.gates, tokens=config.api.tokens, test_notifier=_no_notifier, public=True,
        )  # fmt: skip
        self.reloads = []
        self.url = ""
        self.token_file = folder / "token"

    async def _reload(self, actor, source):
        self.reloads.append((actor, source))

    def follow(self, config=None):
        self.config = config or self.config
        self.restarts.configure(self.config)
        self.restarts.follow(
            (each.identity(), self.config.restart_for(each)) for each in self.config.targets
        )

    def look(
        self, name="a", state="serving", *, up=True, engines=1, events=(), age_s=0.0, start=1.0
    ):
        """One look has ended."""
        signals = TargetSignals(
            target=name, t=time.time() - age_s, up=up, outcome="ok", state=state, state_text="said so",
            process_start_time=start,
            engines={str(n): EngineSignals(engine=str(n), state=state) for n in range(engines)},
        )  # fmt: skip
        looked = Looked.now().ended(
            60.0, 4.0
        )  # fresh for as long as a test takes on a busy machine
        self.board.publish(signals, events=events, looked=looked)
        self.restarts.saw(name, events)

    def incident(
        self,
        event="opened",
        name="a",
        *,
        advised=True,
        kind="engine_stalled",
        cause="hang",
        began_t=None,
    ):
        """A look has led to the event of an incident."""
        now_t = time.time()
        incident = Incident(
            id=f"{kind}-{name}", target=name, engine=None, kind=kind, cause=cause, severity="page",
            summary="no step for 40 s", restart_advised=advised, opened_t=began_t or now_t, began_t=began_t or now_t, updated_t=now_t,
        )  # fmt: skip
        if event == "resolved":
            incident = ended(incident, now_t, "healthy")
        state = "serving" if event == "resolved" else "stalled"
        self.look(name, state, events=[IncidentEvent(event, now_t, incident)])
        return incident.id

    async def decided(self, name="a"):
        """The requests for the target that wait, once each has been decided about."""
        for _ in range(2000):
            waiting = self.restarts.dispatcher.waiting(name)
            if all(each.decision for each in waiting):
                return waiting
            await _soon()
        raise AssertionError("nothing was decided")

    async def shown(self, true, name="a"):
        """The target's status once it is so."""
        found = {}
        for _ in range(2000):
            found = json.loads(Status(self.board).target(name))
            if found["restart"] and true(found["restart"]):
                return found["restart"]
            await _soon()
        raise AssertionError(found["restart"])

    async def ask(self, path, body=None, token=TOKEN):
        """(status, document) of a POST."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self.url + path, json=body or {}, headers={"Authorization": f"Bearer {token}"}
            ) as response,
        ):
            return response.status, json.loads(await response.read())

    async def entries(self, action):
        """What the journal says of one action."""
        return [each for each in await self.restarts.journal.entries() if each.action == action]


async def _soon():
    await asyncio.sleep(0.005)


@asynccontextmanager
async def station(folder, *, mode="approve", targets=("a",), state_dir=True, start=True, **restart):
    """The wiring over targets of one group; its hook is a program that says that it was called."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    hook = folder / "hook"
    hook.write_text(f"#!/bin/sh\necho $VLLM_WATCH_TARGET >> {folder}/calls\n")
    hook.chmod(0o755)
    quick = {"cooldown_seconds": 1, "new_version_seconds": 0, "drain": {"deadline_seconds": 1}}
    document = {
        "targets": [
            {"name": name, "url": f"http://10.0.0.{number}:8000", "group": "g"}
            for number, name in enumerate(targets, 1)
        ],
        "restart": {"mode": mode, "hook": "h", **quick, **restart},
        "hooks": {"command": [{"name": "h", "argv": [str(hook)]}]},
        "api": {"tokens": [{"name": "anna", "file": str(token)}]},
        **({"state_dir": str(folder)} if state_dir else {}),
    }
    one = Station(Config.model_validate(document, context={"folder": folder}), folder)
    for each in one.config.targets:
        one.board.add_target(each.identity(), 5.0)
    await one.server.start()
    one.url = f"http://127.0.0.1:{one.server.port}"
    await one.restarts.open()
    one.follow()
    for name in targets:
        one.look(name)
    if start:
        await one.restarts.start()
    try:
        yield one
    finally:
        await one.restarts.stop()
        if one.journal is not None:
            await one.journal.close()
        await one.server.stop()
