"""Stories of incidents that become alerts: what they say, and whom they wake."""

from collections.abc import Iterator

from tests.alerts.stories import SCRAPED, Fired, Series, Story, alert_of, incident, series, server
from vllm_watch.story.kinds import KINDS
from vllm_watch.story.kinds import STORIES as STORIES_OF

CHAT = {**SCRAPED, "group": "chat"}

WHO = {
    "engine_stalled": "a engine 0",
    "throughput_collapse": "a engine 0",
    "overload": "a engine 0",
}


def _word(kind: str, cause: str, severity: str, alert: str, said: str) -> Story:
    """A server without peers, with one incident."""
    engine = "0" if kind in WHO else ""
    of_engine = {"target": "a", "engine": "0", "model_name": "m"}
    labels = {**SCRAPED, "group": "solo", "target": "a", "kind": kind, "cause": cause, "severity": severity}  # fmt: skip
    return Story(
        f"{kind} {cause}", alert,
        (
            *server("a", "solo"), incident("a", kind, cause, severity, engine=engine),
            series("vllm_watch_engine_last_progress_timestamp_seconds", "60x40", **of_engine),
            series("vllm_watch_engine_throughput_ratio", "0.4x40", **of_engine),
            series("vllm_watch_engine_requests_waiting", "31x40", **of_engine),
        ),
        fires=(Fired(labels | ({"engine": engine} if engine else {}), f"{WHO.get(kind, 'a')} (solo) {said}"),),
    )  # fmt: skip


def _of_kind(kind: str) -> Iterator[Story]:
    """Each of its causes, and one that the rules do not know; and what stays quiet."""
    story, alert = STORIES_OF[kind], alert_of(kind)
    seen = {cause: each.seen for cause, each in story.causes.items()}
    for cause, clause in (seen | {"a_new_one": "a cause that these rules do not know"}).items():
        yield _word(kind, cause, story.severities[0], alert, f"{story.says}: {clause} ({cause}).")
    other = next(each for each in KINDS if each != kind)
    yield Story(f"quiet - {alert}: another kind of incident is open", alert,
                (*fleet(2), incident("chat-0", other, "a_new_one", "ticket")))  # fmt: skip


def caused(unknown: str, thrash: str) -> tuple[Series, ...]:
    """A collapse of the server "a" while its cause is unknown, and when it has turned out to be preemption."""
    return (
        incident("a", "throughput_collapse", "unknown", values=unknown, engine="0"),
        incident("a", "throughput_collapse", "preemption_thrash", "ticket", thrash, engine="0"),
    )


def _collapsed(cause: str, severity: str) -> Fired:
    story = STORIES_OF["throughput_collapse"]
    return Fired(
        {**SCRAPED, "group": "solo", "target": "a", "engine": "0", "kind": "throughput_collapse", "cause": cause, "severity": severity},
        f"a engine 0 (solo) {story.says}: {story.causes[cause].seen} ({cause}).",
    )  # fmt: skip


def fleet(number: int, group: str = "chat") -> tuple[Series, ...]:
    """So many healthy servers: chat-0, chat-1, …"""
    return tuple(each for n in range(number) for each in server(f"{group}-{n}", group))


def _down(number: int, severity: str, count: int, worst: str = "") -> Fired:
    many = f"{count} of chat at once. The worst, by time without progress:{worst}"
    scope = many if count > 1 else ""
    return Fired(
        {**CHAT, "target": f"chat-{number}", "kind": "engine_down", "cause": "crash", "severity": severity},
        f"chat-{number} (chat) is down: nothing listens on its port any more (crash).",
        scope,
    )  # fmt: skip


def crashes(numbers: range, values: str = "1x40") -> tuple[Series, ...]:
    """These servers of the group chat are down; each stood still 10 s longer than the one before it."""
    return tuple(
        each
        for n in numbers
        for each in (
            incident(f"chat-{n}", "engine_down", "crash", values=values),
            series(
                "vllm_watch_engine_last_progress_timestamp_seconds", f"{120 - 10 * n}x40",
                target=f"chat-{n}", engine="0", model_name="m",
            ),
        )
    )  # fmt: skip


WATCHERS_OWN = {**SCRAPED, "target": "vllm-watch", "kind": "engine_down", "cause": "unreachable"}
THREE_GROUPS = tuple(each for group in ("a", "b", "c", "d", "e") for each in server(group, group))
FAILING = Fired(
    {"job": "vllm-watch", "severity": "page"},
    "3 of 5 groups do not serve: engine_stalled hang 2x; engine_down crash 1x; look for what they share.",
)

STORIES = (
    *(story for kind in KINDS for story in _of_kind(kind)),
    _word("of_a_later_version", "new", "page", "VllmIncident", "has an incident: of_a_later_version, new."),
    Story("quiet - the rules know every kind that is open", "VllmIncident",
          (*fleet(2), *(incident("chat-0", kind, "a_new_one", "ticket") for kind in KINDS))),
    Story("a GPU of a host, which is of no group, pages whatever its servers do", "VllmGpuFault",
          (*fleet(4), incident("host:gpu-1", "gpu_fault", "gpu_lost")),
          fires=(Fired({**SCRAPED, "target": "host:gpu-1", "kind": "gpu_fault", "cause": "gpu_lost", "severity": "page"},
                       "host:gpu-1 has a GPU fault: the driver has lost a GPU (gpu_lost)."),)),

    Story("one of four is down: three go on serving, so it is a ticket", "VllmEngineDown",
          (*fleet(4), *crashes(range(1))), fires=(_down(0, "ticket", 1, " chat-0 1m 0s;"),)),
    Story("one of one is down: it is all of its group", "VllmEngineDown",
          (*fleet(1), *crashes(range(1))), fires=(_down(0, "page", 1, " chat-0 1m 0s;"),)),
    Story("one of two is down: the other one is left with twice its work and no peer", "VllmEngineDown",
          (*fleet(2), *crashes(range(1))), fires=(_down(0, "page", 1, " chat-0 1m 0s;"),)),
    Story("two of three are down: the group can not carry it", "VllmEngineDown",
          (*fleet(3), *crashes(range(2))),
          fires=tuple(_down(n, "page", 2, " chat-1 1m 10s; chat-0 1m 0s;") for n in range(2))),
    Story("seven of eight: all say how many, and the same five that are the worst", "VllmEngineDown",
          (*fleet(8), *crashes(range(7))),
          fires=tuple(_down(n, "page", 7, " chat-6 2m 0s; chat-5 1m 50s; chat-4 1m 40s; chat-3 1m 30s; chat-2 1m 20s;")
                      for n in range(7))),
    Story("one of two is down while the other starts: nobody serves", "VllmEngineDown",
          (*server("chat-0", "chat"), *server("chat-1", "chat", "starting"), *crashes(range(1))),
          fires=(_down(0, "page", 1, " chat-0 1m 0s;"),)),
    Story("sleeping replicas are no capacity that was lost, and none that serves", "VllmEngineDown",
          (*fleet(2), *server("chat-2", "chat", "sleeping"), *server("chat-3", "chat", "sleeping"), *crashes(range(1))),
          fires=(_down(0, "page", 1, " chat-0 1m 0s;"),)),
    Story("a page ends as a ticket when its peers are back", "VllmEngineDown",
          (*fleet(3), *crashes(range(1)), incident("chat-1", "engine_stalled", "hang", values="1x8 stale", engine="0")),
          at="6m", fires=(_down(0, "ticket", 1, " chat-0 4m 0s;"),)),
    Story("a collapse whose cause is not found within half a minute", "VllmThroughputCollapse",
          (*server("a", "solo"), *caused("1x40", "_x40")), at="45s", fires=(_collapsed("unknown", "page"),)),
    Story("one whose cause is found meanwhile is told once, with it", "VllmThroughputCollapse",
          (*server("a", "solo"), *caused("1 stale", "_ 1x40")), at="45s", fires=(_collapsed("preemption_thrash", "ticket"),)),
    Story("quiet - a collapse whose cause is looked for", "VllmThroughputCollapse",
          (*server("a", "solo"), *caused("1x40", "_x40")), at="15s"),
    Story("a scrape that fails does not end the alert", "VllmEngineDown",
          (*fleet(3), *crashes(range(1), values="1x6 stale 1x30")), at="1m45s",
          fires=(_down(0, "ticket", 1, " chat-0 0s;"),)),
    Story("quiet - the incident ended two minutes ago", "VllmEngineDown",
          (*fleet(2), *crashes(range(1), values="1x4 stale")), at="3m15s"),
    Story("quiet - what is only good to know is no alert", "VllmGpuFault",
          (*fleet(2), incident("chat-0", "gpu_fault", "xid", "info"))),

    Story("many targets fall silent at once: the watcher's own incident pages", "VllmFleetSilent",
          (*fleet(2), incident("vllm-watch", "engine_down", "unreachable"), series("vllm_watch_targets", "6x40"),
           *(series("vllm_watch_target_up", "0x40", target=f"gone-{n}") for n in range(4))),
          fires=(Fired({**WATCHERS_OWN, "severity": "page"},
                       "Most targets of w:9470 fell silent within a minute (unreachable): 4 of 6 cannot be read."),)),
    Story("quiet - the watcher's own incident is no server's", "VllmEngineDown",
          (*fleet(2), incident("vllm-watch", "engine_down", "unreachable"))),
    Story("quiet - one target that is unreachable is no fleet", "VllmFleetSilent",
          (*fleet(2), incident("chat-0", "engine_down", "unreachable"))),

    Story("three of five groups page at once: they share something", "VllmFleetFailing",
          (*THREE_GROUPS, incident("a", "engine_stalled", "hang", engine="0"), incident("b", "engine_stalled", "hang", engine="0"),
           incident("c", "engine_down", "crash")), fires=(FAILING,)),
    Story("quiet - two of two groups are too few to speak of a fleet", "VllmFleetFailing",
          (*server("a", "a"), *server("b", "b"), incident("a", "engine_down", "crash"), incident("b", "engine_down", "crash"))),
    Story("quiet - tickets of three groups are no failing fleet", "VllmFleetFailing",
          (*THREE_GROUPS, *(incident(name, "overload", "demand", "ticket", engine="0") for name in "abcde"))),
)  # fmt: skip
