"""Who is told what, and when again: each row is an alert as it stands, what was told before, and what is due."""

import pytest

from tests.notify.telling import T, incident, settings, step
from vllm_watch.notify.alert import DROPPED, UNREADABLE, Notification
from vllm_watch.notify.policy import due

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
