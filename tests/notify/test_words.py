"""What a message says: sentences compared whole, bounded, nothing but text in Markdown, and never a secret."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.notify.telling import T, incident, step
from vllm_watch.notify.policy import Batch, Item
from vllm_watch.notify.words import clean, first_step, markdown, message, runbook
from vllm_watch.samples.target import WATCHER
from vllm_watch.settings.notifications import NotificationsSettings, Step
from vllm_watch.story.base import STEPS
from vllm_watch.story.kinds import STORIES

NO_LINKS = NotificationsSettings()
ROOT = Path(__file__).parents[2]
LINKS = NotificationsSettings(
    page_url="https://watch.example.org/", runbooks_url="https://docs.example.org"
)
DAY = "Wed 18 Nov 11:06 UTC"


def said(*items, links=NO_LINKS, digest=False, dropped=0):
    batch = Batch(items=items, digest=digest)
    return message("key-1", batch, links, dropped=dropped, t=T)


def item(phase="opened", *, late=False, **more):
    return Item(phase=phase, alert=incident(**more), late=late)


def test_a_page_reads_as_a_sentence():
    """What, where, since when, cause, three lines of evidence, restart, what to do, where to read on."""
    made = said(item(evidence=("One.", "Two.", "Three.", "Four.")), links=LINKS)
    assert made.title == "CRITICAL chat-0 engine 0 is stalled: hang"
    assert made.text == (
        f"chat-0 engine 0 (chat) is stalled: hang, since {DAY}. "
        "No step has ended for 94 s although 41 requests run.\n"
        "- One.\n- Two.\n- Three.\n"
        f"Do: {STORIES['engine_stalled'].first_step_of('hang', advised=True)}\n"
        "Restart: advised.\n"
        "Runbook: https://docs.example.org/detectors/engine_stalled.md\n"
        "Page: https://watch.example.org/#target-chat-0\n"
        "Id: stall-a"
    )


@pytest.mark.parametrize(("advised", "news"), [(True, "restart advised"), (False, "cause found")])
def test_what_has_changed_stands_first(advised, news):
    """And the advice is that of now."""
    made = said(item("changed", restart_advised=advised))
    assert made.title == f"CRITICAL {news}: chat-0 engine 0 is stalled: hang"
    assert STORIES["engine_stalled"].first_step_of("hang", advised=advised) in made.text
    two = (item("changed", name=name, restart_advised=advised) for name in "ab")
    assert said(*two).text.startswith(f"{news.capitalize()}: 2 alerts in group chat")


def test_the_end_reads_as_a_sentence():
    made = said(item("resolved", ended_t=T + 240, resolution="restarted", engine=None))
    assert made.title == "RESOLVED chat-0: Stalled: hang"
    assert made.text == (
        f"chat-0 (chat): Stalled: hang, from {DAY} until Wed 18 Nov 11:10 UTC. "
        "The process restarted.\nId: stall-a"
    )


def test_many_are_a_count_and_the_worst_five():
    """200 engines of one group: a head, five sentences, how many more, what to do."""
    items = [item(id=f"s{n}", target=f"chat-{n}") for n in range(200)]
    made = said(*items, links=LINKS)
    assert made.title == "CRITICAL 200 of chat: Stalled: hang"
    lines = made.text.splitlines()
    assert lines[0] == "200 alerts in group chat: Stalled: hang."
    assert [line[:9] for line in lines[1:6]] == [f"- chat-{n} " for n in range(5)]
    assert lines[6] == "and 195 more."
    assert lines[-1] == "Page: https://watch.example.org/"
    assert (made.payload["count"], len(made.payload["items"]), len(made.payload["ids"])) == (200, 5, 200)  # fmt: skip


def test_a_digest_counts_by_cause():
    items = [item(), item(id="b", kind="overload", cause="demand", severity="ticket"),
             item("resolved", id="c", ended_t=T)]  # fmt: skip
    made = said(*items, digest=True, dropped=4)
    assert made.title == (
        "CRITICAL 3 alerts at once: 1 engine stalled (hang), 1 overload (demand), 1 resolved: engine stalled (hang)"
    )
    assert made.text.splitlines()[-1] == "4 alerts could not be sent here since the last message."
    assert (made.phase, made.payload["kind"], made.payload["dropped"]) == ("digest", None, 4)


@pytest.mark.parametrize("kind", STORIES)
def test_every_kind_has_its_words_and_its_advice(kind):
    """A message of an unknown cause says what the target does, what to do and where to read on."""
    text = said(item(kind=kind, cause="unknown", engine=None)).text
    story = STORIES[kind]
    assert text.startswith(f"chat-0 (chat) {story.says}: cause unknown, since ")
    assert f"\nDo: {story.first_step_of('unknown', advised=True)}\n" in text
    assert f"\nRunbook: docs/{story.runbook}\n" in text


@pytest.mark.parametrize("name", Step.__args__)
def test_every_step_has_its_words_and_its_advice(name):
    """No message names a step alone."""
    assert STEPS[name].says in said(Item(phase="said", alert=step(name))).text
    assert first_step(step(name)) == STEPS[name].first_step


@pytest.mark.parametrize(
    "matter", [*(incident(kind=kind) for kind in STORIES), incident(target=WATCHER), step()]
)
def test_runbook_is_there(matter):
    page, _, anchor = runbook(matter, NO_LINKS).partition("#")
    text = (ROOT / page).read_text()
    headings = [line.lstrip("# ").lower().replace(" ", "-") for line in text.splitlines() if line.startswith("#")]  # fmt: skip
    assert not anchor or anchor in headings


CANARY = "s3cr3t-canary"
PLANTED = [
    f"https://user:{CANARY}@host/v1",
    f"https://host/hook?sig={CANARY}",
    f"Authorization: Bearer {CANARY}",
    f"--api-key {CANARY}",
    f'{{"password": "{CANARY}"}}',
    f"sk-{CANARY}AAAAAAAA",
    f"redis://:{CANARY}@10.0.0.1:6379/0",
]


@pytest.mark.parametrize("planted", PLANTED)
def test_no_secret_in_any_part_of_a_message(planted):
    """Planted into every text that others give us, as logs, names of models and errors bring them."""
    names = ("summary", "restart", "target", "group")
    more = dict.fromkeys(names, f"seen {planted} there") | {"evidence": (planted, f"x {planted}")}  # fmt: skip
    for phase in ("opened", "resolved"):
        one = item(phase, ended_t=T, **more)
        for made in (
            said(one),
            said(one, item(phase, id="b", **more)),
            said(one, one, digest=True),
        ):
            whole = json.dumps([made.title, made.text, made.markdown, dict(made.payload)])
            assert CANARY not in whole, whole


def test_a_secret_that_is_cut_off_is_no_secret_in_part():
    """What does not fit is left out by whole words, before secrets are looked for."""
    for before in range(180, 260):
        text = f"{'w ' * (before // 2)}https://me:{CANARY}{'x' * 300}@host/ there"
        assert CANARY[:3] not in clean(text, 40)
        assert CANARY[:3] not in clean(text, 100)
    assert clean("x" * 1000, 100) == "…"


@pytest.mark.parametrize("word", ["a-", "sk-", "key=", "--a ", "a:", "token", "://", "@", "eyJ"])
def test_no_text_takes_long(word):
    """The square of a long text's length would hold up the event loop; a bound for a busy machine."""
    began = time.process_time()
    clean(word * 2000, 4000)
    assert time.process_time() - began < 1


def test_what_is_no_secret_stays():
    """Sentences of ours come through as they are."""
    for text in (
        "generation tokens: 5000 of 8192, prompt token ids 1 2 3",
        "GPU-9b1c5 at 91 °C holds 9.3 GiB; kv_cache 0.99 > 0.5",
        "the key is missing",
        "http://10.0.0.7:8000/metrics answered 503",
    ):
        assert clean(text, 400) == text


@given(st.text(max_size=3000))
def test_every_text_is_bounded_and_one_line(text):
    """Whatever a server says: no line break, no control character, no change of direction, cut to its bound."""
    found = clean(text, 100)
    assert len(found) <= 100
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", found)


@given(st.text(alphabet="ab*_`[]()<>#~|&\\!@ \n", max_size=200))
def test_markdown_shows_the_text_and_nothing_else(text):
    """A renderer makes of it the text itself: no link, no emphasis, no code, no tag, no mention."""
    from markdown_it import MarkdownIt  # noqa: PLC0415

    line = clean(text, 200)
    html = MarkdownIt("commonmark").render("- x " + markdown(line))
    assert set(re.findall(r"</?(\w+)", html)) <= {"ul", "li"}
    shown = re.sub(r"<[^>]+>", "", html).replace("&lt;", "<").replace("&gt;", ">")
    shown = shown.replace("&quot;", '"').replace("&amp;", "&").replace("@\u200b", "@")
    assert " ".join(shown.split()) == f"x {line}".strip()


def test_a_message_is_bounded_however_much_there_is_to_say():
    """Services refuse what is too long: a few kilobytes at most."""
    long = "word " * 5000
    items = [item(id=f"i{n}-{long}", summary=long, evidence=(long,) * 9, target=long) for n in range(500)]  # fmt: skip
    made = said(*items, digest=True)
    assert len(made.title) <= 160
    assert max(len(made.text), len(made.markdown)) < 4096
