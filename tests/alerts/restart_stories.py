"""Stories of restarts: what keeps the watcher from one that is wanted, and how the last one ended."""

from tests.alerts.stories import SCRAPED, Fired, Series, Story, incident, series, server

FILES = "incidents.yaml restarts.yaml"
SOLO = {**SCRAPED, "target": "a", "group": "solo"}
STALLED = {**SOLO, "kind": "engine_stalled", "cause": "hang"}
TICKET, PAGE = {"severity": "ticket"}, {"severity": "page"}


def restarts(
    target: str = "a", mode: str = "auto", breaker: int = 0, budget: int | None = 1,
    gate: str = "0x40", approval: str = "0x40", last: str = "", trigger: str = "incident",
) -> tuple[Series, ...]:  # fmt: skip
    """What is shown of a target's restarts; `gate`, `approval`: how many wishes wait for them."""
    told = [
        series("vllm_watch_restart_mode_info", "1x40", target=target, mode=mode),
        series("vllm_watch_restart_breaker_open", f"{breaker}x40", target=target),
        *(
            series("vllm_watch_restart_waiting", values, target=target, **{"for": what})
            for what, values in (("gate", gate), ("approval", approval))
        ),
    ]
    if budget is not None:
        told.append(series("vllm_watch_restart_budget_remaining", f"{budget}x40", target=target))
    if last:
        told.append(series("vllm_watch_restart_last_info", "1x40", target=target, trigger=trigger, outcome=last))  # fmt: skip
    return tuple(told)


def _paused(value: int) -> Series:
    return series("vllm_watch_restart_paused", f"{value}x40")


def _told(alert: str, name: str, *told: Series, fires: tuple[Fired, ...] = (), at: str = "3m") -> Story:  # fmt: skip
    return Story(name, alert, told, at, fires, file=FILES)


SERVES = server("a", "solo")
HANGS = (*server("a", "solo", "stalled"), incident("a", "engine_stalled", "hang", engine="0"))
REPLICAS = (
    *server("a", "chat", "stalled"), *server("b", "chat"), *server("c", "chat"), *server("d", "chat"),
    incident("a", "engine_stalled", "hang", engine="0"),
)  # fmt: skip
BREAKER = "and is not restarted: the last restart in {} did not help, so only a manual restart is allowed."
_OPEN = "a (solo) has an incident (engine_stalled, hang) " + BREAKER.format("solo")
WANTED = "1x40"

BREAKERS = tuple(
    _told("VllmRestartBreakerOpen", name, *told, fires=fires, at=at)
    for name, told, fires, at in (
        ("a restart is wanted, and the last one did not help", (*HANGS, *restarts(breaker=1, gate=WANTED), _paused(0)),
         (Fired({**STALLED, **PAGE}, _OPEN),), "3m"),
        ("two engines of one server: one page", (*HANGS, incident("a", "engine_stalled", "hang", engine="1"), *restarts(breaker=1, gate=WANTED)),
         (Fired({**STALLED, **PAGE}, _OPEN),), "3m"),
        ("a person was asked each time, and the last did not help", (*HANGS, *restarts(mode="approve", breaker=1, gate=WANTED)),
         (Fired({**STALLED, **PAGE}, _OPEN),), "3m"),
        ("one of four is a ticket, as its incident is", (*REPLICAS, *restarts(breaker=1, gate=WANTED), *restarts("b", breaker=1)),
         (Fired({**STALLED, "group": "chat", **TICKET}, "a (chat) has an incident (engine_stalled, hang) " + BREAKER.format("chat")),), "3m"),
        ("one scrape failed: it is the same page still", (*server("a", "solo", "stalled"), *restarts(breaker=1, gate="1x11 stale 1x20"),
         incident("a", "engine_stalled", "hang", values="1x11 stale 1x20")), (Fired({**STALLED, **PAGE}, _OPEN),), "3m"),
        ("quiet - the breaker is open and the engine serves", (*SERVES, *restarts(breaker=1)), (), "3m"),
        ("quiet - a schedule asks in vain, and the engine serves", (*SERVES, *restarts(breaker=1, gate=WANTED)), (), "3m"),
        ("quiet - no restart would cure it", (*server("a", "solo"), incident("a", "throughput_collapse", "thermal_throttle"), *restarts(breaker=1)), (), "3m"),
        ("quiet - it waits for its window", (*HANGS, *restarts(gate=WANTED)), (), "3m"),
        ("quiet - a person has paused all restarts", (*HANGS, *restarts(breaker=1, gate=WANTED), _paused(1)), (), "3m"),
        ("quiet - mode observe does nothing anyway", (*HANGS, *restarts(mode="observe", breaker=1, gate=WANTED)), (), "3m"),
        ("quiet - restarts are off", HANGS, (), "3m"),
        ("quiet - another server of the group has the incident", (*REPLICAS, *restarts("b", breaker=1, gate=WANTED)), (), "3m"),
        ("quiet - it was over two minutes ago", (*server("a", "solo"), *restarts(breaker=1, gate="1x4 0x36"),
         incident("a", "engine_stalled", "hang", values="1x4 stale")), (), "3m30s"),
    )
)  # fmt: skip

_SPENT = "a (solo) has an incident (engine_stalled, hang) and is not restarted: solo has spent its restarts of this hour or day."
BUDGETS = tuple(
    _told("VllmRestartBudgetSpent", name, *told, fires=fires)
    for name, told, fires in (
        ("it hangs again within the hour", (*HANGS, *restarts(budget=0, gate=WANTED)), (Fired({**STALLED, **TICKET}, _SPENT),)),
        ("quiet - the budget is spent and all is healthy", (*SERVES, *restarts(budget=0)), ()),
        ("quiet - a ticket does not ask for a second restart so soon", (*SERVES, incident("a", "host_memory_growth", "leak", "ticket"),
         *restarts(budget=0, gate=WANTED)), ()),
        ("quiet - the breaker is open: then the budget is not what holds it", (*HANGS, *restarts(breaker=1, budget=0, gate=WANTED)), ()),
        ("quiet - nobody can read what is left", (*HANGS, *restarts(budget=None, gate=WANTED)), ()),
        ("quiet - what was asked for is under way", (*HANGS, *restarts(budget=0)), ()),
        ("quiet - it is left one, and waits for its cooldown", (*HANGS, *restarts(gate=WANTED)), ()),
    )
)  # fmt: skip


def _ended(outcome: str, trigger: str = "incident") -> dict[str, str]:
    return {**SOLO, **TICKET, "trigger": trigger, "outcome": outcome}


_NO_MORE = ": automatic restarts in solo stop."
OUTCOMES = (
    _told("VllmRestartDidNotHelp", "it is no better", *SERVES, *restarts(breaker=1, last="did_not_help"),
          fires=(Fired(_ended("did_not_help"), f"a (solo) was restarted and is no better{_NO_MORE}"),)),
    _told("VllmRestartDidNotHelp", "the hook failed", *SERVES, *restarts(breaker=1, last="failed", trigger="schedule"),
          fires=(Fired(_ended("failed", "schedule"), f"a (solo) was to be restarted, and the hook failed{_NO_MORE}"),)),
    _told("VllmRestartDidNotHelp", "only the one of two that it happened to", *SERVES, *server("b", "solo"),
          *restarts(breaker=1, last="did_not_help"), *restarts("b", breaker=1, last="helped"),
          fires=(Fired(_ended("did_not_help"), f"a (solo) was restarted and is no better{_NO_MORE}"),)),
    _told("VllmRestartDidNotHelp", "quiet - a person has resumed since", *SERVES, *restarts(last="did_not_help")),
    _told("VllmRestartDidNotHelp", "quiet - it helped", *SERVES, *restarts(last="helped")),
    _told("VllmRestartDidNotHelp", "quiet - it was cancelled before the hook was called, and the breaker is of its peer", *SERVES, *restarts(breaker=1, last="cancelled")),
    _told("VllmRestartDidNotHelp", "quiet - a watcher starts, and old counters with it", *SERVES, *restarts(last="helped"),
          series("vllm_watch_restarts_total", "_x6 3x30", target="a", trigger="incident", outcome="did_not_help")),
    _told("VllmRestartDidNotHelp", "quiet - restarts were switched off since", *SERVES, *restarts(mode="off", breaker=1, last="failed")),
    _told("VllmRestartUncertain", "the watcher was killed while its hook ran", *SERVES, *restarts(breaker=1, last="uncertain"),
          fires=(Fired(_ended("uncertain"), "It is unknown whether a (solo) was restarted: the watcher or its hook was interrupted."),)),
    _told("VllmRestartUncertain", "quiet - it was verified since, and had helped", *SERVES, *restarts(last="helped")),
    _told("VllmRestartUncertain", "quiet - a person has looked and resumed", *SERVES, *restarts(last="uncertain")),
    _told("VllmRestartUncertain", "quiet - it is certain that it did not help", *SERVES, *restarts(breaker=1, last="did_not_help")),
)  # fmt: skip

_ASKS = (Fired({**SOLO, **TICKET, "for": "approval"}, "a (solo) would be restarted now, and waits for approval."),)  # fmt: skip
APPROVALS = (
    _told("VllmRestartAwaitsApproval", "an incident asks", *HANGS, *restarts(mode="approve", approval="1x40"), fires=_ASKS),
    _told("VllmRestartAwaitsApproval", "a schedule asks", *SERVES, *restarts(mode="approve", approval="1x40"), fires=_ASKS),
    _told("VllmRestartAwaitsApproval", "quiet - it was asked half a minute ago", *HANGS, *restarts(mode="approve", approval="0x9 1x30")),
    _told("VllmRestartAwaitsApproval", "quiet - a gate holds it back", *HANGS, *restarts(mode="approve", gate=WANTED)),
)  # fmt: skip


def _journal(name: str, values: str, mode: str = "auto", fires: bool = False) -> Story:
    said = "w:9470 restarts nothing: it cannot write its journal, or has lost part of it."
    return _told(
        "VllmRestartJournalNotWritten", name, series("vllm_watch_restart_journal_ok", values),
        *SERVES, *restarts(mode=mode), at="8m", fires=(Fired({**SCRAPED, **TICKET}, said),) if fires else (),
    )  # fmt: skip


JOURNALS = (
    _journal("the disk is full", "1x4 0x36", fires=True),
    _journal("quiet - the disk does not take a write since three minutes", "1x20 0x20"),
    _journal("quiet - mode observe would do nothing anyway", "0x40", mode="observe"),
    _journal("quiet - it is written", "1x40"),
)

STORIES = (*BREAKERS, *BUDGETS, *OUTCOMES, *APPROVALS, *JOURNALS)
