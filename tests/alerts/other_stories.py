"""Stories of replicas beside their peers, of promises to users, and of the watcher itself."""

from tests.alerts.stories import SCRAPED, Fired, Series, Story, series

CHAT = {**SCRAPED, "group": "chat"}


def replica(number: int, step: float, tokens: float = 64, kv: float = 0.5) -> tuple[Series, ...]:
    """A replica of chat with its step time in seconds and its load."""
    name = {"target": f"chat-{number}"}
    engine = {**name, "engine": "0", "model_name": "m"}
    return (
        series("vllm_watch_target_info", "1x60", group="chat", **name),
        series("vllm_watch_engine_step_time_seconds", f"{step}x60", **engine),
        series("vllm_watch_engine_tokens_per_step", f"{tokens}x60", **engine),
        series("vllm_watch_engine_kv_cache_usage_ratio", f"{kv}x60", **engine),
    )


PEERS = (*replica(1, 0.02), *replica(2, 0.021), *replica(3, 0.02))
SLOW = Fired(
    {**CHAT, "severity": "ticket", "target": "chat-0", "engine": "0", "model_name": "m"},
    "chat-0 engine 0 takes 2.0 times as long for a step as its peers in chat, at no higher load.",
)


def _beside(name: str, *told: Series, fires: tuple[Fired, ...] = ()) -> Story:
    """Half an hour of a fleet; the alert waits for a quarter of one."""
    return Story(
        name, "VllmEngineSlowerThanPeers", told, "25m", fires, every="30s", file="fleet.yaml"
    )


FLEET = (
    _beside("its step takes twice as long at the same load", *replica(0, 0.041), *PEERS, fires=(SLOW,)),
    _beside("its step takes twice as long, and it has piled up a little more work",
            *replica(0, 0.041, tokens=80, kv=0.6), *PEERS, fires=(SLOW,)),
    _beside("quiet - all are as fast", *replica(0, 0.022), *PEERS),
    _beside("quiet - twice as long for twice the tokens", *replica(0, 0.041, tokens=128), *PEERS),
    _beside("quiet - twice as long with twice the KV cache in use", *replica(0, 0.041, kv=1.0), *PEERS),
    _beside("quiet - of two nobody knows which is wrong", *replica(0, 0.2), *replica(1, 0.02)),
    _beside("quiet - a collapse is open and says it", *replica(0, 0.041), *PEERS,
            series("vllm_watch_incident_open", "1x60", target="chat-0", engine="0",
                   kind="throughput_collapse", cause="slow_engine", severity="page")),
)  # fmt: skip


def promise(
    values: str, objective: str = "time_to_first_token", per_second: str = "2x200"
) -> tuple[Series, ...]:
    """Two engines of one group that meet an objective so often."""
    told: list[Series] = []
    for n in range(2):
        engine = {"target": f"chat-{n}", "engine": "0", "model_name": "m"}
        told += [
            series("vllm_watch_target_info", "1x200", group="chat", target=f"chat-{n}"),
            series("vllm_watch_engine_slo_attainment_ratio", values, objective=objective, **engine),
            series("vllm_watch_engine_requests_finished_per_second", per_second, **engine),
            series("vllm_watch_engine_generation_tokens_per_second", "400x200", **engine),
        ]
    return tuple(told)


def _broken(objective: str, said: str, severity: str = "page", share: str = "30%") -> Fired:
    return Fired(
        {"job": "vllm-watch", "group": "chat", "objective": objective, "severity": severity},
        f"chat misses its objective for {said}: {share} were too slow, and 1% may be.",
    )


def _burn(name: str, at: str, told: tuple[Series, ...], *fires: Fired) -> Story:
    return Story(name, "VllmLatencyBudgetBurn", told, at, fires, every="1m", file="slo.yaml")


TTFT = "the time to first token"
SLO = (
    _burn("three of ten first tokens are late for ten minutes", "10m", promise("0.7x200"), _broken("time_to_first_token", TTFT)),
    _burn("so are the tokens after them", "10m", promise("0.7x200", "inter_token_latency"),
          _broken("inter_token_latency", "the time between tokens")),
    _burn("so are whole requests", "10m", promise("0.7x200", "e2e_latency"),
          _broken("e2e_latency", "the time of a whole request")),
    _burn("two of a hundred are late for hours: a ticket", "2h", promise("0.98x200"),
          _broken("time_to_first_token", TTFT, "ticket", "2%")),
    _burn("an engine without a request does not make the other one better", "10m",
          (*promise("0.7x200"), series("vllm_watch_target_info", "1x200", target="idle", group="chat"),
           series("vllm_watch_engine_slo_attainment_ratio", "1x200", target="idle", engine="0", model_name="m",
                  objective="time_to_first_token"),
           series("vllm_watch_engine_requests_finished_per_second", "0x200", target="idle", engine="0", model_name="m")),
          _broken("time_to_first_token", TTFT)),
    _burn("quiet - 99.5 % are in time", "2h", promise("0.995x200")),
    _burn("quiet - it was over half an hour ago, the hour's share still high", "63m", promise("1x10 0.4x20 1x170")),
    _burn("quiet - ten minutes at twice the budget are no ticket yet", "15m", promise("0.98x200")),
    _burn("quiet - three requests an hour, one of them late", "30m", promise("0.67x200", per_second="0.0004x200")),
    _burn("quiet - no objective is set", "30m", (series("vllm_watch_target_info", "1x200", group="chat", target="chat-0"),
          series("vllm_watch_engine_requests_finished_per_second", "2x200", target="chat-0", engine="0", model_name="m"))),
)  # fmt: skip


def _own(name: str, alert: str, told: tuple[Series, ...], at: str, summary: str = "") -> Story:
    fires = (Fired({**SCRAPED, "severity": "ticket"}, summary),) if summary else ()
    return Story(name, alert, told, at, fires, file="watcher.yaml")


TARGETS = series("vllm_watch_targets", "3x120")
EXPORTED = (
    series("vllm_watch_target_info", "1x120", target="a", group="a"),
    series("vllm_watch_engine_state", "1x120", target="a", engine="0", state="serving"),
    series("vllm_watch_target_last_observation_timestamp_seconds", "0+15x120", target="a"),
)
LOST = "Prometheus does not have the series of the 3 targets that w:9470 watches: alerts on its engines cannot fire, or reach the wrong people."
FULL = "w:9470 has not written its state folder for ten minutes or longer: full; a restart of it would lose this data."
STARTED, KEPT = "process_start_time_seconds", "vllm_watch_store_last_success_timestamp_seconds"
ERRORS = "vllm_watch_store_errors_total"
WATCHER = (
    _own("it starts every two minutes", "VllmWatchRestartLoop", (series(STARTED, "0x7 120x7 240x7 360x40"),), "9m",
         "The vllm-watch at w:9470 has started 3 times in a quarter of an hour."),
    _own("quiet - a roll-out and one start more", "VllmWatchRestartLoop", (series(STARTED, "0x7 120x7 240x60"),), "9m"),
    *(_own(f"{left[0]} does not arrive", "VllmWatchRuleInputMissing",
           (TARGETS, *(each for each in EXPORTED if each is not left)), "8m", LOST) for left in EXPORTED),
    _own("quiet - all arrives", "VllmWatchRuleInputMissing", (TARGETS, *EXPORTED), "8m"),
    _own("quiet - a watcher without targets", "VllmWatchRuleInputMissing", (series("vllm_watch_targets", "0x120"),), "8m"),
    _own("the disk is full since the fifth minute", "VllmWatchStateNotKept",
         (series(KEPT, "0+15x20 300x100"), series(ERRORS, "0x20 1+4x100", reason="full")), "18m", FULL),
    _own("it was full from the start", "VllmWatchStateNotKept", (series(ERRORS, "1+4x100", reason="full"),), "18m", FULL),
    _own("quiet - one write failed", "VllmWatchStateNotKept",
         (series(KEPT, "0+15x120"), series(ERRORS, "0x20 1x100", reason="io")), "8m"),
    _own("quiet - no state folder", "VllmWatchStateNotKept", (TARGETS,), "18m"),
)  # fmt: skip

FAILING, TOLD = "vllm_watch_notifier_failing", "vllm_watch_notifications_total"


def _notifier(name: str, told: tuple[Series, ...], summary: str = "", **labels: str) -> Story:
    """An hour of a notifier."""
    fires = (
        (Fired({**SCRAPED, "severity": "ticket", "notifier": "oncall", **labels}, summary),)
        if summary
        else ()
    )
    return Story(name, "VllmWatchNotifierFailing", told, "20m", fires, file="watcher.yaml")  # fmt: skip


NOTIFIERS = (
    _notifier("its service is away since the fifth minute", (series(FAILING, "0x20 1x100", notifier="oncall"),),
              "The notifier oncall of w:9470 has delivered no message for ten minutes or longer: its receivers miss alerts."),
    _notifier("it has given up four matters, and works again",
              (series(FAILING, "0x120", notifier="oncall"), series(TOLD, "0x4 4x100", notifier="oncall", outcome="dropped")),
              "The notifier oncall of w:9470 has dropped 4 within an hour: its receivers miss alerts.", outcome="dropped"),
    _notifier("quiet - its service was away for five minutes, and tries failed",
              (series(FAILING, "0x20 1x20 0x80", notifier="oncall"), series(TOLD, "0x20 0+1x20 20x80", notifier="oncall", outcome="failed"),
               series(TOLD, "0x120", notifier="oncall", outcome="dropped"))),
    _notifier("quiet - no notifier is configured", (TARGETS,)),
)  # fmt: skip

USABLE, TAKEN = (
    "vllm_watch_web_config_reload_successful",
    "vllm_watch_web_config_last_reload_success_timestamp_seconds",
)
WEB = (
    _own("its certificate was renewed in the third minute, and its key was not", "VllmWatchWebConfigNotUsable",
         (series(USABLE, "1x12 0x60"), series(TAKEN, "60x72")), "9m",
         "w:9470 cannot use the current files of its web configuration, and serves with those of 1970-01-01 00:01:00 UTC."),
    _own("the moment of the one before does not arrive", "VllmWatchWebConfigNotUsable", (series(USABLE, "1x12 0x60"),), "9m",
         "w:9470 cannot use the current files of its web configuration, and serves with those before."),
    _own("quiet - certificate and key come two minutes after each other, and this is between", "VllmWatchWebConfigNotUsable",
         (series(USABLE, "1x12 0x8 1x60"),), "5m"),
    _own("quiet - it is read anew without trouble", "VllmWatchWebConfigNotUsable",
         (series(USABLE, "1x72"), series(TAKEN, "0x20 300x52")), "9m"),
    _own("quiet - no web configuration", "VllmWatchWebConfigNotUsable", (TARGETS,), "9m"),
)  # fmt: skip

STORIES = (*FLEET, *SLO, *WATCHER, *NOTIFIERS, *WEB)
