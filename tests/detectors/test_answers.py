"""What users get is judged: answers that are empty, cut off or endless page; loads that want just that do not."""

from dataclasses import dataclass, field

import pytest

from tests.detectors.looks import engine, seen
from vllm_watch.detectors.engine_failing import Detector, Settings
from vllm_watch.samples.engine import Histogram
from vllm_watch.samples.record import changed
from vllm_watch.watch.watch import Watch

BOUNDS = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    float("inf"),
)


def a_watch():
    return Watch("x", detectors={"engine_failing": Detector(Settings())})


@dataclass(frozen=True)
class Load:
    """Requests a second of one kind: how they end, with how many tokens, of how many that were allowed."""

    each: float
    reason: str
    tokens: int
    asked: int = 1000
    prompt: int = 600


@dataclass
class Server:
    """One engine; `run` lets requests end, look by look, and has them judged."""

    interval: float = 5.0
    asked_known: bool = True
    buckets: bool = True
    model: str = "m"
    second: float = 0.0
    ended: dict = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error"), 0.0)
    )
    sizes: dict = field(default_factory=dict)
    due: dict = field(default_factory=dict)
    tokens: float = 4000.0
    steps: float = 1000.0
    watch: Watch = field(default_factory=a_watch)

    def run(self, seconds, *loads):
        events = []
        for _ in range(round(seconds / self.interval)):
            self.second += self.interval
            for load in loads:
                due = self.due.get(load, 0.0) + load.each * self.interval
                self.due[load] = due - int(due)
                self.ended[load.reason] += int(due)
                self.tokens += int(due) * load.tokens
                self.steps += int(due) * load.tokens / 4
                size = load.prompt, load.tokens, load.asked
                self.sizes[size] = self.sizes.get(size, 0) + int(due)
            events += self.watch.observe(seen(self.second, self._sample(bool(loads))))
        assert self.watch.failures == {}
        return [each for each in events if each.incident.kind == "engine_failing"]

    def _sample(self, running):
        return changed(
            engine(self.steps, running=4.0 * running, kv=0.1 * running), model_name=self.model,
            generation_tokens=self.tokens, request_success=dict(self.ended),
            request_prompt_tokens=self._histogram(0), request_generation_tokens=self._histogram(1),
            request_params_max_tokens=self._histogram(2) if self.asked_known else None,
        )  # fmt: skip

    def _histogram(self, which):
        count = float(sum(self.sizes.values()))
        total = float(sum(size[which] * n for size, n in self.sizes.items()))
        if not self.buckets:
            return Histogram(count, total)
        at_most = tuple(
            float(sum(n for size, n in self.sizes.items() if size[which] <= b)) for b in BOUNDS
        )
        return Histogram(count, total, BOUNDS, at_most)

    @property
    def told(self):
        return [
            (each.cause, each.severity, each.restart_advised)
            for each in self.watch.incidents
            if each.kind == "engine_failing"
        ]


CHAT = (Load(2.0, "stop", 200), Load(0.25, "length", 1000))
EMPTY = (Load(2.0, "stop", 1),)
ONE = (Load(2.0, "length", 1),)
CUT = (Load(2.0, "length", 4),)
BABBLE = (Load(2.0, "length", 1000),)
ILL = {
    "empty": (EMPTY, "empty_answers"),
    "one token": (ONE, "truncated_answers"),
    "babble": (BABBLE, "endless_answers"),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
@pytest.mark.parametrize(("loads", "cause"), ILL.values(), ids=ILL)
def test_answers_that_nobody_can_use_page(loads, cause, interval, known):
    """Against the engine's own past, whether or not vLLM says how many tokens were allowed; never a restart."""
    server = Server(interval=interval, asked_known=known)
    assert server.run(900, *CHAT) == []
    events = server.run(120, *loads)
    assert server.told == [(cause, "page", False)]
    assert events[0].t - 1_700_000_000.0 - 900 <= 75
    server.run(240, *CHAT)
    assert server.told == []


@pytest.mark.parametrize("rate", [0.05, 0.5, 50.0])
@pytest.mark.parametrize(("loads", "cause"), ILL.values(), ids=ILL)
def test_at_any_rate(loads, cause, rate):
    """Down to three a minute."""
    server = Server(interval=15.0)
    usual = (Load(rate, "stop", 200), Load(rate / 8, "length", 1000))
    server.run(7200, *usual)
    server.run(300, *(Load(rate, each.reason, each.tokens) for each in loads))
    assert server.told == [(cause, "page", False)]


@pytest.mark.parametrize(("loads", "cause"), [(EMPTY, "empty_answers"), (ONE, "truncated_answers"), (CUT, "truncated_answers")])  # fmt: skip
def test_what_is_plain_needs_no_past(loads, cause):
    """From the first look on: nobody wants an empty answer, nor a tenth of what was allowed."""
    server = Server()
    server.run(120, *loads)
    assert server.told == [(cause, "page", False)]


def test_empty_answers_without_a_past_are_a_ticket_where_it_is_not_known_what_was_asked():
    """For an hour; then they are what it is for."""
    server = Server(asked_known=False)
    server.run(120, *EMPTY)
    assert server.told == [("empty_answers", "ticket", False)]
    server.run(4000, *EMPTY)
    assert server.told == []


def test_answers_far_below_what_was_asked():
    """Four tokens in place of a thousand, by `length`."""
    server = Server()
    server.run(1800, *CHAT)
    server.run(120, *CUT)
    assert server.told == [("truncated_answers", "page", False)]


CLASSIFIES = Load(20.0, "length", 1, asked=1)
HEALTHY = {
    "classification with max_tokens 1": [(CLASSIFIES,)],
    "... beside chat": [CHAT, (*CHAT, CLASSIFIES), (CLASSIFIES,), CHAT],
    "a benchmark that ignores the end": [(Load(5.0, "length", 256, asked=256),)],
    "... at noon, with prompts of its own": [CHAT, (Load(5.0, "length", 256, asked=256, prompt=64),), CHAT],
    "... beside chat, with long answers": [CHAT, (*CHAT, Load(9.0, "length", 2000, asked=2000)), CHAT],
    "a client lowers max_tokens": [CHAT, (Load(2.0, "length", 100, asked=100),)],
    "probes alone at night": [CHAT, (Load(0.1, "length", 1, asked=1, prompt=3),), CHAT],
    "structured answers of two tokens": [CHAT, (Load(2.0, "stop", 2),), CHAT],
    "shorter answers": [CHAT, (Load(4.0, "stop", 20),), CHAT],
    "clients that hang up at once": [CHAT, (*CHAT, Load(30.0, "abort", 1)), CHAT],
    "a pooling model": [(Load(9.0, "stop", 0),)],
    "nobody asks": [CHAT, (), CHAT],
}  # fmt: skip


@pytest.mark.parametrize("interval", [5.0, 15.0])
@pytest.mark.parametrize("parts", HEALTHY.values(), ids=HEALTHY)
def test_what_clients_want_is_no_trouble(parts, interval):
    server = Server(interval=interval, tokens=0.0 if parts[0][0].tokens == 0 else 4000.0)
    for part in parts:
        assert server.run(900, *part) == []


UNKNOWN_ASKED = {
    "classification alone": ([(CLASSIFIES,)], []),
    "a benchmark alone": ([(Load(5.0, "length", 256),)], []),
    "classification beside chat": ([CHAT, (*CHAT, CLASSIFIES)], []),
    "a client lowers max_tokens": ([CHAT, (Load(2.0, "length", 100),)], []),
    "new clients, other prompts, one token": ([CHAT, (Load(2.0, "length", 1, prompt=60),)], [("truncated_answers", "ticket", False)]),
    "new clients, other prompts, to the end": ([CHAT, (Load(2.0, "length", 900, prompt=60),)], [("endless_answers", "ticket", False)]),
}  # fmt: skip


SCORES = Load(2.0, "length", 1)  # prompts as long as those of chat
CHOOSES = Load(10.0, "stop", 1)
TICKETS = {
    "scoring, ten times as often": (CHAT, (Load(20.0, "length", 1),), "truncated_answers"),
    "scoring beside chat": (CHAT, (*CHAT, Load(40.0, "length", 1)), "truncated_answers"),
    "a few scores at night": (CHAT, (Load(0.5, "length", 1),), "truncated_answers"),
    "choices, each one token": (CHAT, (CHOOSES,), "empty_answers"),
    "choices beside chat": (CHAT, (*CHAT, Load(40.0, "stop", 1)), "empty_answers"),
    "scoring goes on when chat has ended": ((*CHAT, SCORES), (SCORES,), None),
    "choices go on when chat has ended": ((*CHAT, CHOOSES), (CHOOSES,), None),
}


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
@pytest.mark.parametrize(("past", "now", "cause"), TICKETS.values(), ids=TICKETS)
def test_one_token_may_be_all_that_a_tenant_wants(past, now, cause, interval):
    """Where it is not known what was asked, short answers page only in place of as many long ones."""
    server = Server(asked_known=False, interval=interval)
    server.run(1800, *past)
    events = server.run(900, *now)
    assert {each.incident.severity for each in events} == ({"ticket"} if cause else set())
    assert [each[0] for each in server.told] == ([cause] if cause else [])


@pytest.mark.parametrize("one", [Load(1.0, "length", 1), Load(1.0, "stop", 1)], ids=lambda each: each.reason)  # fmt: skip
def test_a_tenant_of_one_token_answers_hides_no_trouble_of_the_others(one):
    """As many answers end at once as were long before, beside those that always do."""
    server = Server(asked_known=False)
    server.run(1800, *CHAT, one)
    server.run(120, one, Load(2.25, one.reason, 1, prompt=700))
    ((_, severity, advised),) = server.told
    assert (severity, advised) == ("page", False)


@pytest.mark.parametrize(("parts", "told"), UNKNOWN_ASKED.values(), ids=UNKNOWN_ASKED)
def test_where_it_is_not_known_what_was_asked_other_clients_are_a_ticket_at_most(parts, told):
    server = Server(asked_known=False, interval=15.0)
    for part in parts:
        server.run(900, *part)
    assert server.told == told
    server.run(5400, *parts[-1])
    assert server.told == []  # what it serves now


def test_without_buckets_the_counter_of_tokens_is_enough():
    """As of a history in Prometheus: an answer that is not short has two tokens."""
    server = Server(asked_known=False, buckets=False)
    server.run(1800, *CHAT)
    server.run(120, *ONE)
    assert server.told == [("truncated_answers", "page", False)]


def test_the_past_outlives_the_watcher_and_the_engine():
    """A restart of either, then answers that never end; another model has no past."""
    for model, told in (("m", [("endless_answers", "page", False)]), ("other", [])):
        server = Server(asked_known=False)
        server.run(1800, *CHAT)
        state = server.watch.export_state()
        server.watch = a_watch()
        assert server.watch.restore(state, 1_700_000_000.0 + server.second) == []
        server.sizes, server.tokens, server.steps, server.model = {}, 500.0, 100.0, model
        server.ended = dict.fromkeys(server.ended, 0.0)
        server.run(180, *BABBLE)
        assert server.told == told


def test_a_night_without_requests_fades_nothing():
    server = Server(interval=15.0)
    server.run(900, *CHAT)
    server.interval = 120.0
    server.run(12 * 3600)
    server.interval = 15.0
    server.run(120, *BABBLE)
    assert server.told == [("endless_answers", "page", False)]


def test_a_page_goes_on_for_as_long_as_it_is_so():
    server = Server(interval=15.0)
    server.run(1800, *CHAT)
    server.run(3 * 3600, *BABBLE)
    assert server.told == [("endless_answers", "page", False)]
