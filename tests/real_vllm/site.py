"""Several real servers that belong together, the daemon that watches them, and every word it has said of each."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real_vllm.daemon import Daemon
from tests.real_vllm.ward import EVERY_SECOND, TIMES

POLL_SECONDS = 0.5
OPENED_SECONDS_MAX = 240.0  # requests that wait for KV are granted a minute
RESOLVED_SECONDS_MAX = 420.0

Incident = Mapping[str, Any]


class Site:
    """Incidents are known by target; a page that names the machine's own lack of CPUs is no mistake."""

    def __init__(self, daemon: Daemon, names: Sequence[str]) -> None:
        self.daemon, self._names = daemon, names
        self._claims: dict[str, list[Incident]] = {}  # by id, what it became
        self._known: frozenset[str] = frozenset()

    def look(self) -> list[Incident]:
        """Ask for all incidents, and remember what is new in them."""
        listed: list[Incident] = [x for name in self._names for x in self.daemon.incidents(name)]
        for each in listed:
            said = self._claims.setdefault(each["id"], [])
            if not said or any(said[-1][key] != each[key] for key in _TOLD):
                said.append(each)
        return listed

    def settled(self) -> None:
        """Wait until nothing is open; what comes from now on is new."""
        self._wait("never healthy", lambda: [each for each in self.look() if each["state"] == "open"] == [], RESOLVED_SECONDS_MAX)  # fmt: skip
        self._known = frozenset(self._claims)

    def comes_to(self, target: str, kind: str, causes: Sequence[str], severity: str) -> Incident:
        """Wait until there is such an open incident of it."""
        began_s = time.monotonic()
        found: list[Incident] = []

        def is_there() -> bool:
            found[:] = [
                each for each in self.look()
                if (each["target"], each["kind"], each["state"], each["severity"]) == (target, kind, "open", severity)
                and each["cause"] in causes and each["id"] not in self._known
            ]  # fmt: skip
            return bool(found)

        self._wait(f"no {severity} {kind} {causes} of {target}", is_there, OPENED_SECONDS_MAX)
        passed_s = time.monotonic() - began_s
        TIMES.append(f"{target}: {found[0]['cause']} is a {severity} after {passed_s:.1f} s")
        return found[0]

    def relates(self, one: Incident, other: Incident) -> None:
        """Wait until the first names the second: of two that open at once, one learns of the other at its next look."""

        def does() -> bool:
            return any(each["id"] == one["id"] and other["id"] in each["related"] for each in self.look())  # fmt: skip

        self._wait(f"{one['id']} does not name {other['id']}", does, OPENED_SECONDS_MAX)

    def passes(self, seconds: float) -> None:
        """Let a time pass in which nobody is paged, and no restart is advised."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self.look()
            time.sleep(POLL_SECONDS)
        assert self.pages() == {}, self.said()

    def pages(self) -> dict[str, set[str]]:
        """Who was paged or advised to be restarted since it was last settled → of what causes."""
        found: dict[str, set[str]] = {}
        for name, said in self._claims.items():
            for each in said if name not in self._known else ():
                if each["severity"] == "page" or each["restart_advised"]:
                    found.setdefault(each["target"], set()).add(each["cause"])
        return {name: causes for name, causes in found.items() if causes != {"neighbour_contention"}}  # fmt: skip

    def said(self) -> str:
        """What it told, in words."""
        return "\n".join(
            f"{name}: " + " > ".join(" ".join(str(each[key]) for key in _SHOWN) for each in said)
            for name, said in self._claims.items()
        )

    def _wait(self, failure: str, is_so: Callable[[], bool], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not is_so():
            states = [self.daemon.status(name)["state_text"] for name in self._names]
            told = f"{failure} in {seconds_max:.0f} s: {states}. It told:\n{self.said()}"
            assert time.monotonic() < deadline, told
            time.sleep(POLL_SECONDS)


_TOLD = ("cause", "severity", "restart_advised", "state")
_SHOWN = ("target", "kind", "cause", "severity", "restart_advised", "state", "summary")


@contextmanager
def watched(folder: Path, names: Sequence[str], config: str) -> Iterator[Site]:
    """Watch them as the configuration says, a look each second."""
    with Daemon(folder, {}, EVERY_SECOND, config) as daemon:
        site = Site(daemon, names)
        try:
            yield site
        finally:
            print(f"\n{daemon.log}\n{site.said()}")
