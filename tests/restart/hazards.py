"""What a control action can do wrong, what prevents it, and the test that shows it: the table in docs/restart-safety.md.

By STPA's four kinds of unsafe control action (Leveson and Thomas, STPA Handbook, 2018). `python -m tests.restart.hazards`
writes the table; a test fails when it is stale, or when a test is not there.
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "restart-safety.md"
BEGIN, END = "<!-- hazards -->", "<!-- /hazards -->"

KINDS = ("missing", "unsafe", "mistimed", "duration")
"""Not given when it is needed; given when it is unsafe; at the wrong time or in the wrong order; stopped too soon, or applied
for too long."""


@dataclass(frozen=True)
class Hazard:
    """One way in which one action is unsafe."""

    action: str
    kind: str
    unsafe: str
    prevented: str
    tests: tuple[str, ...]  # path below tests/ :: name


MACHINE = "restart/test_machine.py::test_nothing_that_must_not_happens"

HAZARDS = (
    Hazard("restart", KINDS[0], "an unhealthy engine is forgotten", "the restart request stays queued; alerts do not depend on it", (MACHINE,)),
    Hazard("restart", KINDS[1], "hits a healthy engine or another process", "after the drain, a scrape must find the intended process", (MACHINE, "restart/test_decided_process.py::test_a_process_that_took_its_place_in_the_drain_is_left_alone")),
    Hazard("restart", KINDS[2], "runs before it is on disk; runs twice; runs too soon", "`calling` is written first, once; budget, cooldown, peers, lock", (MACHINE, "restart/test_crash.py::test_hook_is_never_called_again")),
    Hazard("restart", KINDS[3], "the hook is killed between stop and start", "on SIGTERM the watcher waits", (MACHINE, "restart/test_daemon_restarts.py::test_a_hook_that_has_begun_may_end")),
    Hazard("drain", KINDS[0], "requests are lost", "restarts drain first", ("restart/test_restart.py::test_order",)),
    Hazard("drain", KINDS[1], "a new process is cut off", "gates name the process", ("restart/test_gates.py::test_only_who_stands_beside_that_server_is_told",)),
    Hazard("drain", KINDS[2], "begins before it is on disk", "the gate answers `ok` until then", ("restart/test_gates.py::test_what_is_not_on_disk_is_not_said",)),
    Hazard("drain", KINDS[3], "lasts beyond the call; drains a stuck engine", "ends with the call; stuck engines are not drained", ("restart/test_restart.py::test_order", "restart/test_restart.py::test_how_a_drain_goes")),
    Hazard("pause", KINDS[0], "is not saved", "an error is returned", ("restart/test_controls.py::test_what_is_not_kept_does_not_hold",)),
    Hazard("pause", KINDS[1], "goes unnoticed", "its author is shown; alerts continue", ("restart/test_operators.py::test_pause_and_resume",)),
    Hazard("pause", KINDS[2], "set after the intent", "checked again before the call", (MACHINE, "restart/test_dispatcher.py::test_pause_stops_what_waits_and_what_has_not_called_yet")),
    Hazard("pause", KINDS[3], "lost by a restart or damage", "on disk; unreadable means paused", ("restart/test_controls.py::test_holds_over_a_start", "restart/test_controls.py::test_odd_pause_is_a_pause")),
    Hazard("reclaim", KINDS[0], "stale holders go unseen", "detector `stale_vram`", ("reclaim/test_reclaim_plan.py::test_an_orphan_is_planned",)),
    Hazard("reclaim", KINDS[1], "ends a working process", "two polls, an approval", ("reclaim/test_reclaim_plan.py::test_refused", "reclaim/test_reclaim_plan.py::test_only_what_was_seen_twice_is_certain")),
    Hazard("reclaim", KINDS[2], "the PID was reused", "pidfd", ("reclaim/test_ending.py::test_a_number_given_to_another_hits_nobody",)),
    Hazard("reclaim", KINDS[3], "workers survive", "workers end with their core", ("reclaim/test_reclaim_plan.py::test_stale_workers_go_with_their_core", "reclaim/test_vram_release.py::test_it_waits_until_it_is_so")),
    Hazard("page", KINDS[0], "no alert because the budget is spent", "severity does not depend on the guard", (MACHINE,)),
    Hazard("page", KINDS[1], "one page per engine in a common outage", "one is critical, the others are warnings", (MACHINE, "incidents/test_fleet.py::test_of_many_each_is_a_ticket_without_advice_and_linked")),
    Hazard("page", KINDS[2], "sent before it is on disk; sent twice", "rows are written first; one message per phase", ("notify/test_killed.py::test_killed_at",)),
    Hazard("page", KINDS[3], "resolved too soon", "needs three healthy scrapes", ("incidents/test_fleet_counted.py::test_one_look_without_an_answer_releases_nobody",)),
)  # fmt: skip


def table() -> str:
    """A row for each action, in Markdown: what is unsafe, and in italics what prevents it."""
    cells = {(each.action, each.kind): f"{each.unsafe}: *{each.prevented}*" for each in HAZARDS}
    actions = dict.fromkeys(each.action for each in HAZARDS)
    rows = [(action, *(cells[action, kind] for kind in KINDS)) for action in actions]
    lines = (("", *KINDS), ("-",) * (1 + len(KINDS)), *rows)
    return "\n".join(f"|{'|'.join(each)}|" for each in lines)


def written(page: str) -> str:
    """The page with this table in it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
