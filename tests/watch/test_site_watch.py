"""A recording of several servers: each by its own looks, the GPUs of each host once, as the daemon judges them."""

from dataclasses import replace

from tests.detectors.looks import engine, seen, silent
from tests.told import said
from tests.watch.hosted import core, gpu, opened
from vllm_watch.watch.host_watch import SiteWatch
from vllm_watch.watch.watch import Watch

ONE, OTHER, ELSEWHERE = "http://gpu-1:8000", "http://gpu-1:8001", "http://gpu-2:8000"
A, B = core(11, 10), core(21, 20, started=-86_000.0)


def looks(site, second, gpus, *urls, down=()):
    told = []
    for url in urls:
        look = silent(second) if url in down else seen(second, engine(1000 + 10 * second))
        told += said(site.look(replace(look, target=url, gpus=gpus)))
    return told


def test_servers_of_one_address_share_its_gpus():
    """Both carry the same reading: a lost GPU is one incident, and not one for each of them; another host's is its own."""
    site = SiteWatch()
    for second in range(0, 60, 5):
        assert looks(site, second, (gpu(0, A), gpu(1, B)), ONE, OTHER, ELSEWHERE) == []
    told = []
    for second in range(60, 80, 5):
        told += looks(site, second, (gpu(0, A),), ONE, OTHER)
        told += looks(site, second, (gpu(0, A), gpu(1, B)), ELSEWHERE)
    assert opened(told) == [("host:gpu-1", "gpu_fault", "page")]
    assert sorted(site.hosts) == ["gpu-1", "gpu-2"]
    assert sorted(site.watches) == sorted((ONE, OTHER, ELSEWHERE))
    assert site.failures == {}


def test_a_crash_is_linked_with_what_its_host_has():
    """The only server of its host, beside one elsewhere: what is wrong there hits it."""
    site = SiteWatch()
    for second in range(0, 300, 5):
        looks(site, second, (gpu(0),), ONE)
        looks(site, second, None, ELSEWHERE)
    told = []
    for second in range(300, 340, 5):
        told += looks(site, second, (gpu(0, lost=True),), ONE, down=[ONE])
    fault, down = opened(told)
    assert (fault, down) == (("host:gpu-1", "gpu_fault", "page"), (ONE, "engine_down", "ticket"))


def test_a_detector_that_broke_is_named_whosever_it_is():
    class Breaks:
        def update(self, view):
            raise ValueError("no")

    site = SiteWatch(lambda url: Watch(url, detectors={"bad": Breaks()}))
    looks(site, 0, (gpu(0),), ONE)
    site.hosts["gpu-1"]._detectors["gpu_fault"] = Breaks()
    looks(site, 5, (gpu(0),), ONE)
    assert site.failures == dict.fromkeys(("bad", "gpu_fault"), "ValueError: no")
