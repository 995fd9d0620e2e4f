"""The table of what watching costs: its engines are healthy ones, and its page shows what was measured last."""

import json

from benchmarks.engines import bodies
from benchmarks.performance import page
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch

LOOKS = 120


def test_the_page_shows_what_was_measured_last():
    assert page.PAGE.read_text() == page.text(json.loads(page.FIGURES.read_text()))


def test_the_engines_that_are_watched_change_and_are_healthy():
    """What an incident costs is not what a look costs."""
    reader, watch = Reader(), Watch("a")
    call = Call(outcome="ok", status=200, latency_s=0.004)
    texts = bodies(LOOKS)
    for look, text in enumerate(texts):
        at_s = 5.0 * look
        reading = reader.read(text)
        assert not watch.observe(
            Observation(t=1.7e9 + at_s, monotonic_s=at_s, target="a", scrape=call, health=call, reading=reading)
        )  # fmt: skip
    before, after = (text.split("\n") for text in texts[-2:])
    values = [line for line in after if line and not line.startswith("#")]
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert changed > 0.8 * len(values)
    assert watch.signals.engines["0"].restarts == 0
