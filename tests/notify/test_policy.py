"""Who is told what, and when again: each row is an alert as it stands, what was told before, and what is due.

Then what is one message: of one cause in one group, or a digest; how many in an hour; what is given up.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.notify.telling import T, incident, settings, step
from vllm_watch.notify.alert import DROPPED, UNREADABLE, Notification
from vllm_watch.notify.policy import WAITING_MAX, again, choose, due, too_many

HOUR = 3600.0
ENDED = {"ended_t": T + 60, "resolution": "healthy"}


def told(phase="opened", severity="page", sent_t=T, message="m1", **fields):
    alert = incident(severity=severity, **fields)
    return Notification(notifier="a", name=phase, t=T, alert=alert, sent_t=sent_t, message=message)


GIVEN_UP = told(message=DROPPED)


STORIES = {
    # what: (settings, alert, known, seconds after T, phase that is due)
    "a page opens": ({}, incident(), [], 0, "opened"),
    "it was told": ({}, incident(), [told()], 60, None),
    "it waits to be told": ({}, incident(), [told(sent_t=None)], 60, None),
    "a ticket opens": ({}, incident(severity="ticket"), [], 0, "opened"),
    "an info opens": ({}, incident(severity="info"), [], 0, None),
    "an info is wanted": ({"severities": ["info"]}, incident(severity="info"), [], 0, "opened"),
    "a page where only tickets are wanted": ({"severities": ["ticket"]}, incident(), [], 0, None),
    "a ticket becomes a page": ({}, incident(), [told(severity="ticket")], 60, "worse"),
    "a ticket becomes a page where only pages are wanted": ({"severities": ["page"]}, incident(), [], 0, "opened"),
    "it was told that it became worse": ({}, incident(), [told(severity="ticket"), told("worse")], 60, None),
    "a page becomes a ticket": ({}, incident(severity="ticket"), [told()], 60, None),
    "and a page again": ({}, incident(), [told(), told("worse")], 60, None),
    "a restart is advised by now": ({}, incident(), [told(restart_advised=False)], 60, "changed"),
    "a restart is advised, and a message that waits says so": ({}, incident(), [told(sent_t=None)], 60, None),
    "a restart was advised, was not, and is again": ({}, incident(), [told(restart_advised=False), told("changed")], 60, None),
    "a restart is advised no more": ({}, incident(restart_advised=False), [told()], 60, None),
    "its cause is known by now": ({}, incident(cause="hang"), [told(cause="unknown")], 60, "changed"),
    "its cause is another one": ({}, incident(cause="hang"), [told(cause="unknown"), told("changed", cause="swap")], 60, None),
    "its cause is known no more": ({}, incident(cause="unknown"), [told(cause="hang")], 60, None),
    "it becomes worse, and a restart is advised": ({}, incident(), [told(severity="ticket", restart_advised=False)], 60, "worse"),
    "it recovers, and a restart is advised": ({}, incident(phase="recovering"), [told(restart_advised=False)], 60, None),
    "it ends": ({}, incident(**ENDED), [told()], 60, "resolved"),
    "its end was told": ({}, incident(**ENDED), [told(), told("resolved")], 60, None),
    "it ends and nobody was told of it": ({}, incident(**ENDED), [], 60, None),
    "it ends before it could be told": ({}, incident(**ENDED), [told(sent_t=None)], 60, "resolved"),
    "it ends and its beginning was given up": ({}, incident(**ENDED), [GIVEN_UP], 60, None),
    "it ends, and a reminder of it was told": (
        {}, incident(**ENDED), [GIVEN_UP, told("reminder")], 60, "resolved"),
    "its beginning was given up four hours ago": ({}, incident(), [GIVEN_UP], 4 * HOUR, "reminder"),
    "it ends and ends are not wanted": ({"resolved": False}, incident(**ENDED), [told()], 60, None),
    "it ends as what is not wanted any more": ({"severities": ["ticket"]}, incident(**ENDED), [told()], 60, "resolved"),
    "it is open after its end": ({}, incident(), [told(), told("resolved")], 60, None),
    "a page is open for four hours": ({}, incident(), [told()], 4 * HOUR, "reminder"),
    "a page is open for less": ({}, incident(), [told()], 4 * HOUR - 1, None),
    "it was reminded of an hour ago": ({}, incident(), [told(), told("reminder", sent_t=T + 4 * HOUR)], 5 * HOUR, None),
    "it was reminded of four hours ago": ({}, incident(), [told(), told("reminder", sent_t=T + 4 * HOUR)], 8 * HOUR, "reminder"),
    "the reminder still waits": ({}, incident(), [told(), told("reminder", sent_t=None)], 9 * HOUR, None),
    "a ticket is open for a day": ({}, incident(severity="ticket"), [told(severity="ticket")], 24 * HOUR, None),
    "reminders are off": ({"reminder_hours": 0}, incident(), [told()], 99 * HOUR, None),
    "it is silenced": ({}, incident(silenced=True), [], 0, None),
    "it is silenced while it is open": ({}, incident(silenced=True), [told()], 9 * HOUR, None),
    "a ticket that is silenced becomes a page": ({}, incident(silenced=True), [told(severity="ticket")], 9, None),
    "one that was silenced ends": ({}, incident(silenced=True, **ENDED), [told()], 60, "resolved"),
    "the silence is over, and it was never told": ({}, incident(), [], 9 * HOUR, "opened"),
    "it is a part of a greater one": ({}, incident(severity="ticket", inhibited=True), [], 0, None),
    "another kind is wanted": ({"kinds": ["overload"]}, incident(), [], 0, None),
    "this kind is wanted": ({"kinds": ["engine_stalled"]}, incident(), [], 0, "opened"),
    "another group is wanted": ({"groups": ["mail"]}, incident(), [], 0, None),
    "this group is wanted": ({"groups": ["chat"]}, incident(), [], 0, "opened"),
    "it is of no group": ({"groups": ["mail"]}, incident(group=""), [], 0, "opened"),
    "a target that cannot be read": ({}, incident(about=UNREADABLE, severity="ticket"), [], 0, "opened"),
    "a target that cannot be read for a day": ({}, incident(about=UNREADABLE), [told()], 24 * HOUR, None),
    "a restart did not help": ({}, step("did_not_help"), [], 0, "said"),
    "that was told": ({}, step("did_not_help"), [told("said", "ticket")], 0, None),
    "a restart that would have been": ({}, step("dry_run"), [], 0, None),
    "a restart that would have been is wanted": ({"restarts": ["dry_run"]}, step("dry_run"), [], 0, "said"),
    "a restart of two hours ago": ({}, step("helped"), [], 2 * HOUR, None),
    "a restart of another group": ({"groups": ["mail"]}, step("helped"), [], 0, None),
    "no incidents, only restarts": ({"severities": []}, step("helped"), [], 0, "said"),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "alert", "known", "after", "phase"), STORIES.values(), ids=STORIES)  # fmt: skip
def test_what_is_due(wanted, alert, known, after, phase):
    """Once for each phase, to whom it concerns, and no more when a person wants to hear no more."""
    assert due(settings(**wanted), alert, known, T + after) == phase


def waits(alert, phase="opened", t=T):
    return Notification(notifier="a", name=phase, t=t, alert=alert)


def many(count, **more):
    return [waits(incident(f"stall-{n}", target=f"chat-{n}", **more)) for n in range(count)]


def targets(batch):
    return [each.alert.incident.target for each in batch.items]


def test_it_waits_for_others_of_its_kind():
    """Nothing is sent before the window is over, and it is said when to ask again."""
    one = settings(group_seconds=20)
    assert choose(one, many(1), [], T + 19) == (None, T + 20)
    batch, _ = choose(one, many(1), [], T + 20)
    assert [each.key for each in batch.notifications] == [("a", "stall-0", "opened")]


def test_a_clock_that_is_stepped_back_holds_nothing_up():
    """What seems to be of the future is told now."""
    batch, _ = choose(settings(group_seconds=20), [waits(incident(), t=T + 3600)], [T + 3590], T)
    assert batch is not None


A = incident("a", target="a")
MESSAGES = {
    # what: (what waits, the targets of each message in the order in which they are sent)
    "one cause over a group": (many(3), ["chat-0 chat-1 chat-2"]),
    "two groups": ([waits(A), waits(incident("b", target="b", group="mail"))], ["a", "b"]),
    "two causes": ([waits(A), waits(incident("b", target="b", cause="idle_wedged"))], ["a", "b"]),
    "two severities": ([waits(incident("b", target="b", severity="ticket")), waits(A)], ["a", "b"]),
    "a beginning and an end": ([waits(A), waits(incident("b", target="b", ended_t=T), "resolved")], ["a", "b"]),
    "restarts of two servers": ([waits(step(), "said"), waits(step(target="b"), "said")], ["chat-0", "b"]),
    "two steps": ([waits(step(), "said"), waits(step("helped"), "said")], ["chat-0", "chat-0"]),
    "five groups": ([waits(incident(f"s{n}", target=f"t{n}", group=f"g{n}")) for n in range(5)],
                    ["t0", "t1", "t2", "t3", "t4"]),
    "six groups are one digest": ([waits(incident(f"s{n}", target=f"t{n}", group=f"g{n}")) for n in range(6)],
                                  ["t0 t1 t2 t3 t4 t5"]),
}  # fmt: skip


@pytest.mark.parametrize(("waiting", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_what_is_one_message(waiting, expected):
    """One phase of one cause in one group; the worst first; more than five at once are one trouble."""
    sent = []
    while waiting:
        batch, _ = choose(settings(), waiting, [], T + 1)
        sent.append(" ".join(targets(batch)))
        assert batch.digest == (len(expected) < 5 < len(waiting))
        waiting = [each for each in waiting if each not in batch.notifications]
    assert sent == expected


FOLDED = {
    # what waits of one alert: (phases, the phase that is told, is it told late)
    "opened": (["opened"], "opened", False),
    "it became worse before it was told": (["opened", "worse"], "opened", False),
    "it ended before it was told": (["opened", "resolved"], "resolved", True),
    "all of it": (["opened", "worse", "reminder", "resolved"], "resolved", True),
    "it was told open, and became worse and ended": (["worse", "resolved"], "resolved", False),
}


@pytest.mark.parametrize(("phases", "phase", "late"), FOLDED.values(), ids=FOLDED)
def test_one_alert_is_told_once(phases, phase, late):
    """Of all that waits of one alert only how it stands is told; the rest goes with it."""
    waiting = [waits(incident(), name, T + n) for n, name in enumerate(phases)]
    batch, _ = choose(settings(), waiting, [], T + 99)
    assert [(each.phase, each.late) for each in batch.items] == [(phase, late)]
    assert len(batch.notifications) == len(phases)


def groups(count, severity="ticket"):
    return [
        waits(incident(f"s{n}", target=f"t{n}", group=f"g{n}", severity=severity))
        for n in range(count)
    ]


SENT_LATELY = {
    # what: (what waits, times of the last hour's messages (seconds before), alerts in the message, digest, ask again)
    "the hour has room": (groups(1), [10, 20], 1, False, None),
    "the last of the hour": (groups(1), [10, 20, 30, 40], 1, False, None),
    "the last of the hour is for all": (groups(3), [10, 20, 30, 40], 3, True, None),
    "the hour is full": (groups(1), [10, 20, 30, 40, 3000], 0, False, 600),
    "the hour is full, a page waits five minutes": (groups(1, "page"), [10, 20, 30, 40, 3000], 0, False, 290),
    "five minutes later": (groups(2, "page"), [300, 320, 330, 340, 3000], 2, True, None),
    "one page goes alone": (groups(1, "page"), [300, 320, 330, 340, 3000], 1, False, None),
    "a message of more than an hour ago": (groups(1), [10, 20, 30, 40, 3601], 1, False, None),
    "more than the hour's were pages": (groups(1), [10, 20, 30, 40, 50, 60, 3000], 0, False, 3550),
}  # fmt: skip


@pytest.mark.parametrize(
    ("waiting", "ago", "count", "digest", "again_s"), SENT_LATELY.values(), ids=SENT_LATELY
)
def test_how_many_in_an_hour(waiting, ago, count, digest, again_s):
    """Five an hour here: then one digest when there is room, and for pages within five minutes."""
    now = T + 100
    batch, again_t = choose(
        settings(messages_per_hour_max=5), waiting, [now - each for each in ago], now
    )
    assert (len(batch.items) if batch else 0, bool(batch and batch.digest)) == (count, digest)
    assert again_t == (None if again_s is None else now + again_s)


@given(st.lists(st.tuples(st.integers(0, 7200), st.sampled_from(["page", "ticket"])), max_size=120))
def test_no_hour_has_more_than_its_messages_and_nothing_is_lost(moments):
    """Whatever happens when: at most five and twelve digests of pages in any hour, and all of it is told."""
    one, sent, waiting, told = settings(messages_per_hour_max=5), [], [], 0
    coming = [
        (T + t, waits(incident(f"s{n}", group=f"g{n % 9}", severity=severity), t=T + t))
        for n, (t, severity) in enumerate(sorted(moments))
    ]
    now = T
    while coming or waiting:
        while coming and coming[0][0] <= now:
            waiting.append(coming.pop(0)[1])
        batch, again_t = choose(one, waiting, sent, now)
        if batch is not None:
            sent.append(now)
            sent_now = {each.key for each in batch.notifications}
            told += len(sent_now)
            waiting = [each for each in waiting if each.key not in sent_now]
            continue
        later = [t for t in (again_t, coming[0][0] if coming else None) if t is not None]
        assert later
        assert min(later) > now
        now = min(later)
    assert told == len(moments)
    for t in sent:
        assert sum(t - 3600 < each <= t for each in sent) <= 5 + 12


TOO_LATE = {
    "a page of a day": (waits(incident()), 24 * 3600, False),
    "a page of more": (waits(incident()), 24 * 3600 + 1, True),
    "a ticket of four hours": (waits(incident(severity="ticket")), 4 * 3600, False),
    "a ticket of more": (waits(incident(severity="ticket")), 4 * 3600 + 1, True),
    "an info of an hour": (waits(incident(severity="info")), 3601, True),
}


@pytest.mark.parametrize(("one", "seconds", "gone"), TOO_LATE.values(), ids=TOO_LATE)
def test_what_waited_too_long_is_given_up(one, seconds, gone):
    """Tickets before pages."""
    assert too_many([one], T + seconds) == ([one] if gone else [])


def test_what_is_too_much_is_given_up_tickets_first():
    """The oldest of the least severe; the bound holds whatever comes."""
    pages = [waits(incident(f"p{n}"), t=T + n) for n in range(WAITING_MAX - 1)]
    tickets = [waits(incident(f"t{n}", severity="ticket"), t=T + 1000 + n) for n in range(3)]
    gone = too_many([*pages, *tickets], T + 2000)
    assert [each.alert.id for each in gone] == ["t0", "t1"]


def test_a_message_that_was_begun_is_the_same_again():
    """What is told for the second time is what was told for the first."""
    for waiting in (many(3), groups(7)):
        batch, _ = choose(settings(), waiting, [], T + 1)
        assert again(batch.notifications) == batch
