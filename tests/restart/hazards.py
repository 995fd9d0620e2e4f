"""What a control action can do wrong, what prevents it, and the test that shows it: the table in docs/restart-safety.md.

By STPA's four kinds of unsafe control action (Leveson and Thomas, STPA Handbook, 2018). `python -m tests.restart.hazards`
writes the table; a test fails when it is stale, or when a test is not there.
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "restart-safety.md"
BEGIN, END = "<!-- hazards -->", "<!-- /hazards -->"

KINDS = ("not given", "given", "wrong time", "cut short, or too long")
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
MODEL = "restart/test_model.py::test_nothing_breaks_and_nobody_is_forgotten"

HAZARDS = (
    Hazard("restart", KINDS[0], "a sick engine is forgotten", "requests wait until their reason ends; pages need no restart", (MACHINE, MODEL)),
    Hazard("restart", KINDS[1], "on a healthy or another process", "a scrape after the drain must find the decided one", (MACHINE, "restart/test_decided_process.py::test_a_process_that_took_its_place_in_the_drain_is_left_alone")),
    Hazard("restart", KINDS[2], "before it is on disk; twice; out of turn", "`calling` first, never called again; budget, cooldown, peers, lock", (MACHINE, "restart/test_crash.py::test_hook_is_never_called_again")),
    Hazard("restart", KINDS[3], "the hook ends between stop and start", "SIGTERM awaits it", (MACHINE, "restart/test_decided_daemons.py::test_a_hook_that_has_begun_may_end")),
    Hazard("drain", KINDS[0], "requests are lost", "every restart drains first", ("restart/test_restart.py::test_order",)),
    Hazard("drain", KINDS[1], "a new process gets no requests", "the gate names the process that it is about", ("restart/test_gates.py::test_only_who_stands_beside_that_server_is_told",)),
    Hazard("drain", KINDS[2], "the word is given before it is on disk", "the gate answers `ok` until then", ("restart/test_gates.py::test_what_is_not_on_disk_is_not_said",)),
    Hazard("drain", KINDS[3], "it holds after the call, or up a stuck engine", "it ends with the call; stuck engines are not waited for", ("restart/test_restart.py::test_requests_may_come_again_once_it_was_called", "restart/test_drain.py::test_story")),
    Hazard("pause", KINDS[0], "what cannot be written is taken for a pause", "the person gets an error", ("restart/test_controls.py::test_what_is_not_kept_does_not_hold",)),
    Hazard("pause", KINDS[1], "nobody knows that it holds", "actor and reason are shown; pages go on", ("restart/test_operators.py::test_pause_and_resume",)),
    Hazard("pause", KINDS[2], "after the intent it comes too late", "the guard is asked again before the call", (MACHINE, "restart/test_dispatcher.py::test_pause_stops_what_waits_and_what_has_not_called_yet")),
    Hazard("pause", KINDS[3], "a start, damage or an odd entry ends it", "it is on disk; what cannot be read is a pause", ("restart/test_controls.py::test_holds_over_a_start", "restart/test_controls.py::test_odd_pause_is_a_pause")),
    Hazard("reclaim", KINDS[0], "stale holders go unseen", "`stale_vram` names them", ("reclaim/test_reclaim_plan.py::test_an_orphan_is_planned",)),
    Hazard("reclaim", KINDS[1], "a process that works is ended", "idle or stale in two readings, and a person's yes", ("reclaim/test_reclaim_plan.py::test_refused", "reclaim/test_reclaim_plan.py::test_only_what_was_seen_twice_is_certain")),
    Hazard("reclaim", KINDS[2], "the PID is another's by now", "the process is pinned (pidfd)", ("reclaim/test_ending.py::test_a_number_given_to_another_hits_nobody",)),
    Hazard("reclaim", KINDS[3], "half of a tree stays", "workers go with their core; it waits for the memory", ("reclaim/test_reclaim_plan.py::test_stale_workers_go_with_their_core", "reclaim/test_vram_release.py::test_it_waits_until_it_is_so")),
    Hazard("page", KINDS[0], "budget spent, nobody told", "severity does not depend on the guard", (MACHINE, MODEL)),
    Hazard("page", KINDS[1], "a common outage pages for each", "one page; the others are tickets", (MACHINE, "incidents/test_fleet.py::test_of_many_each_is_a_ticket_without_advice_and_linked")),
    Hazard("page", KINDS[2], "it is told before it is on disk, or twice", "rows first; one message per phase", ("notify/test_killed.py::test_killed_at",)),
    Hazard("page", KINDS[3], "it ends while the trouble lasts", "three quiet scrapes", ("incidents/test_fleet.py::test_one_look_without_an_answer_releases_nobody",)),
)  # fmt: skip


def table() -> str:
    """The rows, in Markdown."""
    rows = [f"|{each.action}: {each.kind}|{each.unsafe}|{each.prevented}|" for each in HAZARDS]
    return "\n".join(["|action|hazard|prevented by|", "|-|-|-|", *rows])


def written(page: str) -> str:
    """The page with this table in it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
