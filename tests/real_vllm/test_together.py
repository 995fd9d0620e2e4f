"""Servers that need each other, live: whichever of a pair or of two ranks is hurt is the one that is told."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.real_vllm import together
from tests.real_vllm.daemon import Daemon
from tests.real_vllm.faults import stopped_at_work
from tests.real_vllm.load import Load, Report, under_load
from tests.real_vllm.server import USUAL, RealVllm
from tests.real_vllm.together import Pair
from tests.real_vllm.ward import EVERY_SECOND, TIMES
from tests.real_vllm.witness import comes_to, moment

pytestmark = [pytest.mark.real_vllm, pytest.mark.long]

POLL_SECONDS = 0.5
OPENED_SECONDS_MAX = 240.0  # requests that wait for KV are granted a minute
RESOLVED_SECONDS_MAX = 420.0

Incident = Mapping[str, Any]
HEALTHY_SECONDS = float(os.environ.get("REAL_VLLM_HEALTHY_SECONDS", "120"))
SERVED_SECONDS_MAX = 180.0  # of the first request, and until requests get through again
LOAD = Load(clients=2, prompt_tokens=(32, 300), output_tokens=(16, 64), requests_max=1_000_000, seconds_max=7200.0)  # fmt: skip
LONG = replace(LOAD, output_tokens=(200, 400))
STOPPED = ("stopped", "hang", "idle_wedged")  # what is known of the processes, or what is not done
PREFILL, DECODE = "prefill", "decode"
PAIR = """
targets:
  - {{name: prefill, url: "{0}"}}
  - {{name: decode, url: "{1}", peers: [prefill]}}
"""
RANKS = """
targets:
  - {{name: rank0, url: "{0}", gang: moe}}
  - {{name: rank1, url: "{1}", gang: moe}}
"""


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


@contextlib.contextmanager
def watched(folder: Path, names: Sequence[str], config: str) -> Iterator[Site]:
    """Watch them as the configuration says, a look each second."""
    with Daemon(folder, {}, EVERY_SECOND, config) as daemon:
        site = Site(daemon, names)
        try:
            yield site
        finally:
            print(f"\n{daemon.log}\n{site.said()}")


@contextlib.contextmanager
def served(url: str, load: Load = LOAD) -> Iterator[Report]:
    """Load that gets through."""
    with under_load(url, load) as report:
        gets_through(report)
        yield report


def gets_through(report: Report) -> None:
    before, deadline = report.finished, time.monotonic() + SERVED_SECONDS_MAX
    while report.finished < before + 5:
        assert time.monotonic() < deadline, f"no request gets through: {report}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Site]]:
    folder = tmp_path_factory.mktemp("pair")
    with together.pair(folder) as servers:
        config = PAIR.format(servers.prefill.url, servers.decode.url)
        with watched(folder, (PREFILL, DECODE), config) as site:
            yield servers, site


def test_a_pair_at_work_pages_nobody(pair: tuple[Pair, Site]) -> None:
    servers, site = pair
    with served(servers.url) as report:
        site.settled()
        site.passes(HEALTHY_SECONDS)
        gets_through(report)


def test_a_prefill_that_hangs_is_told_and_the_decode_that_waits_for_it_is_related(
    pair: tuple[Pair, Site],
) -> None:
    servers, site = pair
    with served(servers.url):
        site.settled()
    handed = [servers.prefilled(seed) for seed in range(3)]
    with servers.decoding(handed) as answers:
        with servers.prefill.stopped("engine_core"):
            culprit = site.comes_to(PREFILL, "engine_stalled", STOPPED, "page")
            victim = site.comes_to(DECODE, "engine_stalled", ("peer_wait",), "ticket")
            assert culprit["id"] in victim["related"]
        assert all(each.result()["usage"]["completion_tokens"] == 32 for each in answers)
    with served(servers.url):
        site.settled()
    assert DECODE not in site.pages(), site.said()


def test_a_decode_that_hangs_is_told_and_nothing_of_the_prefill(pair: tuple[Pair, Site]) -> None:
    servers, site = pair
    with served(servers.url, LONG) as report:
        site.settled()
        with stopped_at_work(servers.decode, "engine_core"):
            site.comes_to(DECODE, "engine_stalled", STOPPED, "page")
        gets_through(report)
        site.settled()
    assert PREFILL not in site.pages(), site.said()


def test_a_prefill_that_dies_is_told_and_the_decode_that_fails_without_it_is_related(
    pair: tuple[Pair, Site],
) -> None:
    servers, site = pair
    with served(servers.url):
        site.settled()
    handed = [servers.prefilled(seed) for seed in range(10, 40)]
    servers.prefill.kill("engine_core")
    servers.prefill.wait_gone()
    for body in handed:
        with servers.decoding([body]) as answers:
            pass
        assert answers[0].exception() is not None
        time.sleep(0.5)
    culprit = site.comes_to(PREFILL, "engine_down", ("crash",), "page")
    victim = site.comes_to(DECODE, "engine_failing", ("kv_transfer",), "ticket")
    assert culprit["id"] in victim["related"]
    servers.prefill.restart(USUAL)
    with served(servers.url):
        site.settled()
    assert DECODE not in site.pages(), site.said()


def test_a_decode_that_dies_is_told_and_nothing_of_the_prefill(pair: tuple[Pair, Site]) -> None:
    servers, site = pair
    with served(servers.url, LONG):
        site.settled()
        comes_to(servers.decode.url, lambda now: now.last.running > 0, SERVED_SECONDS_MAX)
        servers.decode.kill("engine_core")
        site.comes_to(DECODE, "engine_down", ("crash",), "page")
        servers.decode.wait_gone()
        servers.decode.restart(USUAL)
    with served(servers.url):
        site.settled()
    assert PREFILL not in site.pages(), site.said()


@pytest.fixture(scope="module")
def ranks(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[tuple[RealVllm, RealVllm], Site]]:
    folder = tmp_path_factory.mktemp("ranks")
    with together.ranks(folder) as both:
        config = RANKS.format(*(each.url for each in both))
        with watched(folder, ("rank0", "rank1"), config) as site:
            yield both, site


@contextlib.contextmanager
def both_served(both: tuple[RealVllm, RealVllm]) -> Iterator[None]:
    with served(both[0].url), served(both[1].url):
        yield


Ranks = tuple[tuple[RealVllm, RealVllm], Site]


def test_ranks_at_work_page_nobody(ranks: Ranks) -> None:
    both, site = ranks
    with both_served(both):
        site.settled()
        site.passes(HEALTHY_SECONDS)


def test_the_rank_that_hangs_is_told_and_the_one_that_steps_with_it_is_related(
    ranks: Ranks,
) -> None:
    """The load is on rank 0 alone: it stands still with work, and rank 1, which is stopped, reads idle."""
    both, site = ranks
    with both_served(both):
        site.settled()
    with served(both[0].url, LONG) as report:
        with both[1].stopped("engine_core"):
            culprit = site.comes_to("rank1", "engine_stalled", ("stopped",), "page")
            victim = site.comes_to("rank0", "engine_stalled", ("rank_wait",), "ticket")
            assert culprit["id"] in victim["related"]
            assert moment(both[0].url).running > 0
        gets_through(report)
        site.settled()
    pages = site.pages()
    assert "rank0" not in pages, site.said()


def test_a_rank_that_dies_is_told_and_what_it_takes_with_it_is_related(ranks: Ranks) -> None:
    """vLLM's other rank ends by itself, since its collectives fail: both must be started again."""
    both, site = ranks
    with both_served(both):
        site.settled()
        both[1].kill("engine_core")
        first = site.comes_to("rank1", "engine_down", ("crash",), "page")
        other = site.comes_to("rank0", "engine_down", ("crash",), "page")
        assert not first["restart_advised"]
        assert not other["restart_advised"]
    site.relates(first, other)
    for each in both:
        each.stop()
    for each in both:
        each.launch()
    for each in both:
        each.wait_ready()
    with both_served(both):
        site.settled()
