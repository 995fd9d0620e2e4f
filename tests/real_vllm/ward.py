"""One engine under a load, the daemon that watches it, and every word it has said of it.

Follows the incidents as people do: the list that is asked for (/api/v1/incidents), checked in the end
against the log, where no incident can come and go unseen between two questions.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.real_vllm.daemon import Daemon
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import RealVllm, Size
from tests.real_vllm.witness import comes_to, turns

TARGET = "tiny"
EVERY_SECOND = {
    "SCRAPE__INTERVAL_SECONDS": "1",
    "RECORDER__MINUTES": "60",  # all of it, to be replayed
    "RECORDER__BYTES_MAX": str(256 << 20),
    "LOG__FORMAT": "json",
}
POLL_SECONDS = 0.5
# The longest of all is pinning, whose requests must first be let in; measured: 8 to 30 s.
OPENED_SECONDS_MAX = 120.0
# A page after 20 to 30 s, the advice to restart after two minutes of work that is slow beyond doubt.
GROWN_SECONDS_MAX = 300.0
# A collapse ends after up to 50 s in which an alarm drains and 60 s of quiet, a start after a crash takes a minute.
RESOLVED_SECONDS_MAX = 300.0
# Learning takes 40 s of work; the faults of the recordings came after 100 s.
LEARNT_SECONDS = 75.0

# The share in which the engine waited is taken over all of a healthy time, of which the machine may have been
# crowded for the last seconds only: half of 12 of 120.
CROWDED_SHARE = 0.05
CROWDED_TRIES = 3
QUEUE_SECONDS_MAX = 60.0  # until more than the engine can do has made a queue; a few seconds
# Of what the engine at hand can do; measured, since machines differ by several times.
USUAL_SHARE = 0.5
MEASURED_SECONDS = 8.0
LOAD_SECONDS_MAX = 3600.0  # outlives every test; the end of the block ends it

TIMES: list[str] = []  # how soon each fault was told of, and its end: shown when all tests have run

Incident = Mapping[str, Any]
Claim = tuple[str, str, bool]  # cause, severity, restart advised


def requests_per_second_max(vllm: RealVllm, mix: Load) -> float:
    """What the engine can do of such requests, when more wait than can run."""
    with under_load(vllm.url, replace(mix, clients=48)) as report:
        time.sleep(MEASURED_SECONDS / 4)  # until all that can run do
        before = report.finished
        time.sleep(MEASURED_SECONDS)
        return max(1.0, report.finished - before) / MEASURED_SECONDS


@dataclass
class Ward:
    """`began_s`: monotonic, when the engine began to work under the daemon's eyes."""

    vllm: RealVllm
    daemon: Daemon
    began_s: float = 0.0
    requests_per_second_max: float = 0.0
    claims: dict[str, list[Claim]] = field(default_factory=dict)  # by id, the first first
    _known: frozenset[str] = frozenset()
    _size: Size | None = None  # of the engine that was measured
    _load: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def admit(self, size: Size, mix: Load) -> None:
        """See that such an engine serves its usual load of `mix`; one that does already is left in peace."""
        complete = set(self.vllm.processes()) == {"api_server", "engine_core"}
        if complete and self._size == self.vllm.size == size:
            return
        self._load.close()
        if not complete or self.vllm.size != size:
            self.vllm.restart(size)
        self.requests_per_second_max = requests_per_second_max(self.vllm, mix)
        self._size = size
        self.usual_load(mix)
        self.began_s = time.monotonic()

    def usual_load(self, mix: Load) -> None:
        """Serve this from now on, as often as the engine can well bear."""
        self._load.close()
        usual = replace(
            mix,
            requests_per_second=USUAL_SHARE * self.requests_per_second_max,
            requests_max=1_000_000,
            seconds_max=LOAD_SECONDS_MAX,
        )
        self._load.enter_context(under_load(self.vllm.url, usual))

    def without_load(self) -> None:
        self._load.close()

    def look(self) -> list[dict[str, Any]]:
        """Ask for the incidents, and remember what is new in them."""
        listed = self.daemon.incidents(TARGET)
        for each in listed:
            said = self.claims.setdefault(each["id"], [])
            claim = each["cause"], each["severity"], each["restart_advised"]
            if each["state"] == "open" and said[-1:] != [claim]:
                said.append(claim)
        return listed

    def settled(self) -> None:
        """Wait until nothing is open; what comes from now on is new."""
        deadline = time.monotonic() + RESOLVED_SECONDS_MAX
        while [each for each in self.look() if each["state"] == "open"]:
            assert time.monotonic() < deadline, f"never healthy: {self.said()}"
            time.sleep(POLL_SECONDS)
        self._known = frozenset(self.claims)

    def healthy(self) -> None:
        """The same, and wait until the engine has been learnt."""
        while (left_s := self.began_s + LEARNT_SECONDS - time.monotonic()) > 0:
            time.sleep(min(left_s, POLL_SECONDS))
            self.look()
        self.settled()

    def opens(self, kind: str, cause: str, since_s: float) -> Incident:
        """Wait until there is an open incident of this kind and cause; `since_s`: monotonic, of the fault."""
        incident = self._wait(
            f"no {kind}/{cause} was opened",
            lambda each: (each["kind"], each["cause"], each["state"]) == (kind, cause, "open"),
            OPENED_SECONDS_MAX,
        )
        TIMES.append(f"{cause}: told after {time.monotonic() - since_s:.1f} s")
        return incident

    def becomes(self, incident: Incident, *, severity: str, restart_advised: bool) -> Incident:
        """Wait until it says so, while what is wrong lasts."""
        return self._wait(
            f"{incident['id']} never was a {severity}, with a restart advised {restart_advised}",
            lambda each: (
                (each["id"], each["state"]) == (incident["id"], "open")
                and (each["severity"], each["restart_advised"]) == (severity, restart_advised)
            ),
            GROWN_SECONDS_MAX,
        )

    def resolves(self, incident: Incident, resolution: str = "healthy") -> None:
        """Wait for its end; fails where it ended otherwise, or was not the only one since it was settled."""
        name, since_s = incident["id"], time.monotonic()
        ended = self._wait(
            f"{name} was not resolved",
            lambda each: each["id"] == name and each["state"] == "resolved",
            RESOLVED_SECONDS_MAX,
        )
        passed = time.monotonic() - since_s
        TIMES.append(f"{ended['cause']}: {ended['resolution']} {passed:.1f} s after its end")
        assert ended["resolution"] == resolution
        assert not ended["restart_advised"]
        assert self.new() == [name], self.said()

    def new(self) -> list[str]:
        """Ids of the incidents since it was last settled, by what the log says of them."""
        told = [each["id"] for each in self.daemon.logged() if each["event"] == "incident_opened"]
        return [name for name in told if name not in self._known]

    def passes(self, seconds: float, more: Load | None = None) -> None:
        """Let a time pass, under `more` than the usual load, in which nothing may page.

        Where the machine had no CPU for the engine, steps did take longer, and whoever says so is right if he
        names the neighbour in the end and never advises a restart: then the time begins anew, a few times.
        """
        for _ in range(CROWDED_TRIES):
            began = turns(self.vllm.pid("engine_core"))
            with under_load(self.vllm.url, more) if more else contextlib.nullcontext():
                if more:
                    comes_to(self.vllm.url, lambda now: now.last.waiting > 10, QUEUE_SECONDS_MAX)
                paged = self._paged_within(seconds)
            if paged is None:
                return
            waited = turns(self.vllm.pid("engine_core")).waited_share(began)
            assert waited >= CROWDED_SHARE, f"{waited:.0%} waited for a CPU:\n{self.said()}"
            TIMES.append(f"once more: the engine waited for a CPU {waited:.0%} of its time")
            self.settled()
            claims = self.claims[paged["id"]]
            assert claims[-1][0] == "neighbour_contention", self.said()
            assert not any(restart for _, _, restart in claims), self.said()
        raise AssertionError(f"the machine is too busy for this test:\n{self.said()}")

    def _paged_within(self, seconds: float) -> Incident | None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for each in self.look():
                if each["severity"] == "page" and each["id"] not in self._known:
                    return each
            time.sleep(POLL_SECONDS)
        return None

    def said(self) -> str:
        """What it told, in words."""
        return "\n".join(
            f"{each['id']}: {self.claims[each['id']]} {each['state']}: {each['summary']}"
            for each in self.look()
        )

    def _wait(
        self, failure: str, is_it: Callable[[dict[str, Any]], bool], seconds_max: float
    ) -> Incident:
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline:
            for each in self.look():
                if is_it(each):
                    return each
            time.sleep(POLL_SECONDS)
        state = self.daemon.status(TARGET)["state_text"]
        raise AssertionError(f"{failure} in {seconds_max:.0f} s: {state}. It told:\n{self.said()}")


def start(vllm: RealVllm, folder: Path) -> Daemon:
    """The daemon that looks each second and keeps a recording of all it saw."""
    return Daemon(folder, {TARGET: vllm.url}, EVERY_SECOND)
