"""The books of a KV cache: pages that nobody who runs can be holding."""

import pytest

from vllm_watch.signals.blocks import Block
from vllm_watch.signals.pages import Pages, none_prefilling

CAPACITY = 10_000.0
ZERO = 777_000.0  # tokens of requests that were aborted long ago, and so never booked out


class Books:
    """A cache of which is said how much is in use, and how many tokens are in flight."""

    def __init__(self, capacity=CAPACITY, interval=5.0):
        self.pages = Pages()
        self.at_s = 0.0
        self.capacity = capacity
        self.interval = interval

    def see(self, usage, tokens, *, well=False, running=10.0):
        self.at_s += self.interval
        block = Block(
            at_s=self.at_s, seconds=self.interval, steps=100.0, step_seconds=0.05,
            tokens_per_step=10.0, kv_usage=usage, running=running, waiting=0.0, waiting_min=0.0, running_min=running,
            generated=20.0 * running, prompted=0.0, finished=1.0, finished_tokens=100.0, preempted=0.0,
            kv_usage_end=usage, tokens_in_flight=None if tokens is None else ZERO + tokens,
        )  # fmt: skip
        self.pages.note(block, self.capacity, well=well)
        return self

    def healthy(self, seconds=600):
        for turn in range(round(seconds / self.interval)):
            tokens = 3000.0 + 300.0 * (turn % 5 - 2)
            self.see(tokens / CAPACITY, tokens, well=True)
        return self


STORIES = {
    "the load grows": (lambda b: b.see(0.9, 9000.0), 0.0),
    "long requests take the rest": (lambda b: b.see(0.99, 9900.0), 0.0),
    "pages are taken and no token comes": (lambda b: b.see(0.99, 3000.0), 0.69),
    "... and requests leave for lack of them": (lambda b: b.see(0.99, 500.0), 0.94),
    "half and half": (lambda b: b.see(0.9, 6000.0), 0.3),
}


@pytest.mark.parametrize("capacity", [CAPACITY, None], ids=["said", "learnt"])
@pytest.mark.parametrize(("story", "unheld"), STORIES.values(), ids=STORIES)
def test_what_no_request_accounts_for(story, unheld, capacity):
    """Whether vLLM says how large the cache is or it has to be learnt from how usage follows the tokens."""
    books = story(Books(capacity).healthy())
    assert books.pages.unheld() == pytest.approx(unheld, abs=0.02)


def test_shared_prefixes_are_not_taken_for_lost_pages():
    """Half of all prompts is shared: twice the tokens for each page, until few that share nothing run."""
    books = Books()
    for turn in range(100):
        tokens = 3000.0 + 300.0 * (turn % 5 - 2)
        books.see(0.5 * tokens / CAPACITY, tokens, well=True)
    assert books.see(0.9, 9000.0).pages.unheld() < 0.5


RISES = {
    "at once": ([0.99], 0.0, 5.0),
    "over six hours": ([0.3 + 0.69 * n / 4320 for n in range(4321)], 10_800.0, 13_900.0),
}


@pytest.mark.parametrize(("usages", "low", "high"), RISES.values(), ids=RISES)
def test_how_long_it_took(usages, low, high):
    """From a fifth to four fifths; the engine seems well until the cache is full."""
    books = Books().healthy()
    for usage in usages:
        books.see(usage, 3000.0, well=usage < 0.9)
    assert low <= books.see(0.99, 3000.0).pages.rise_seconds() <= high


def leaking(days, *, nights=True):
    """Pages leak with every request; each night nobody asks anything for an hour."""
    books = Books(interval=60.0)
    for minute in range(int(days * 1440)):
        lost = 0.6 * minute / (days * 1440)
        if nights and minute % 1440 < 60:
            books.see(lost, 0.0, well=True, running=0.0)
        else:
            tokens = 3000.0 + 300.0 * (minute % 5 - 2)
            books.see(lost + tokens / CAPACITY, tokens, well=True)
    return books


def test_pages_that_leak_over_days():
    """What the last hours knew as well is no norm: an idle engine holds no page."""
    books = leaking(3.0)
    assert books.pages.idle_lost == pytest.approx(0.41, abs=0.02)
    assert books.see(0.98, 3500.0).pages.unheld() == pytest.approx(0.63, abs=0.03)
    assert books.pages.rise_seconds() > 3600.0
    assert leaking(3.0, nights=False).see(0.98, 3500.0).pages.unheld() < 0.2  # nothing shows it


def test_an_idle_engine_that_has_lost_nothing():
    """Pages of the last requests are free after some seconds, and a look at an idle moment is no idle time."""
    books = Books().healthy().see(0.3, 0.0, running=0.0).see(0.3, 0.0, running=0.0)
    assert books.pages.idle_lost == 0.0
    books.see(0.0, 0.0, running=0.0)
    assert books.pages.idle_lost == 0.0
    assert books.healthy().see(0.9, 9000.0).pages.unheld() == pytest.approx(0.0, abs=0.02)


def test_nothing_is_said_without_books():
    """Less than a minute of health, no counts of finished requests, or no size and no change to learn it from."""
    assert Books().healthy(30).see(0.99, 3000.0).pages.unheld() is None
    assert Books().see(0.9, None).pages.unheld() is None
    still = Books(None)
    for _ in range(60):
        still.see(0.3, 3000.0, well=True)
    assert still.see(0.99, 3000.0).pages.unheld() is None
    assert still.pages.rise_seconds() is None


def test_who_gets_a_token_in_each_step_is_not_being_prefilled():
    block = Block(
        at_s=5.0, seconds=5.0, steps=100.0, step_seconds=0.05, tokens_per_step=10.0,
        kv_usage=0.9, running=10.0, waiting=0.0, waiting_min=0.0, running_min=10.0, generated=200.0,
        prompted=0.0, finished=0.0, finished_tokens=0.0, preempted=0.0,
    )  # fmt: skip
    assert none_prefilling(block)
    for field, value in (("generated", 100.0), ("steps", None)):
        fields = {name: getattr(block, name) for name in Block.__slots__} | {field: value}
        assert not none_prefilling(Block(**fields))
