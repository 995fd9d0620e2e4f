"""Servers that need each other, live: whichever of a pair or of two ranks is hurt is the one that is told."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.real_vllm import together
from tests.real_vllm.faults import stopped_at_work
from tests.real_vllm.load import Load, Report, under_load
from tests.real_vllm.server import USUAL, RealVllm
from tests.real_vllm.site import Site, watched
from tests.real_vllm.together import Pair
from tests.real_vllm.witness import comes_to, moment

pytestmark = [pytest.mark.real_vllm, pytest.mark.long]

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
