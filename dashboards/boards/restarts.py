"""What did the restarts do? What waits and why not now, what was done and how it ended, and whether it was worth it."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import units

from vllm_watch.state.attempt import ENDED_STATES

from . import links, promql, variables
from .annotations import incidents, restarts
from .layout import Panel, Section, assembled
from .panels import ATTENTION_FROM_1, areas, band, lines, number, stairs, word
from .promql import OF_TARGETS
from .runbooks import runbook
from .style import FROM_NOW, NOW, OFF, PLAIN, QUIET, SOON, STATE_WORDS, UNKNOWN, WELL, YES_NO, Words
from .tables import Column, filled

OUTCOME_COLORS = {
    "helped": WELL, "did_not_help": NOW, "failed": "dark-red", "uncertain": UNKNOWN, "cancelled": PLAIN, "dry_run": QUIET,
}  # fmt: skip
OUTCOMES: Words = [(n, word_, OUTCOME_COLORS[word_]) for n, word_ in enumerate(ENDED_STATES)]
FEW = 10  # lines that can be told apart
PAUSED: Words = ((0, "Restarts may happen", WELL), (1, "Paused by a person", SOON))
JOURNAL: Words = ((1, "Can be written", WELL), (0, "Cannot: nothing is restarted", NOW))
BREAKER: Words = ((0, "closed", PLAIN), (1, "open", NOW))


def _now() -> list[Panel]:
    def total(name: str) -> str:
        return f"sum(vllm_watch_restart_{name})"

    off = "Restarts are off"
    chosen = f"{{{OF_TARGETS}}}"
    return [
        word("Restarts paused?", [("max(vllm_watch_restart_paused)", "")],
             "A pause stops all restarts until it ends or someone resumes them. " + runbook("restart.md"), PAUSED, nothing=off, absent=OFF),
        word("Restart journal", [("min(vllm_watch_restart_journal_ok)", "")],
             "Nothing is restarted that cannot be written to the journal: check the disk of the state folder. " + runbook("restart-safety.md"),
             JOURNAL, nothing=off, absent=OFF),
        number("Waiting for approval", total(f'waiting{{{OF_TARGETS}, for="approval"}}'),
               "Approve it on the incident's card or with vllm-watch approve. " + runbook("restart.md"),
               marks=ATTENTION_FROM_1, nothing=off, absent=OFF),
        number("Waiting for a gate", total(f'waiting{{{OF_TARGETS}, for="gate"}}'),
               "Requested and blocked; the gate is named below.", nothing=off),
        number("In progress", total(f"under_way{chosen}"),
               "From the intent to the end of the verification.", nothing=off),
        number("Open breakers", total(f"breaker_open{chosen}"),
               "Their last restart did not help. Read vllm-watch journal; vllm-watch resume closes the breaker. "
               + runbook("alerts.md#vllmrestartbreakeropen"), marks=ATTENTION_FROM_1, nothing=off, absent=OFF),
    ]  # fmt: skip


def _targets() -> Panel:
    """One row per target: what may happen to it, what did, and what comes next."""
    numbered = " or ".join(
        f'{number} * vllm_watch_restart_last_info{{{OF_TARGETS}, outcome="{outcome}"}}'
        for number, outcome in enumerate(ENDED_STATES)
    )

    def by(expr: str) -> str:
        return f"max by (instance, target) ({expr})"

    def of(name: str) -> str:
        return by(f"vllm_watch_restart_{name}{{{OF_TARGETS}}}")

    return filled(
        "Targets",
        [
            Column(title="Target", label="target", links=[links.to_engine()]),
            Column(title="Breaker", expr=of("breaker_open"), said=BREAKER, width=90),
            Column(title="Waits", expr=f"sum by (instance, target) (vllm_watch_restart_waiting{{{OF_TARGETS}}})", width=80),
            Column(title="Under way", expr=of("under_way"), said=YES_NO, width=100),
            Column(title="Left in the budget", expr=of("budget_remaining"), width=140),
            Column(title="The last one", expr=by(numbered), said=OUTCOMES, width=130),
            Column(title="It ended", expr=by(f"vllm_watch_restart_last_timestamp_seconds{{{OF_TARGETS}}} * 1000"), unit=FROM_NOW),
            Column(title="Recovered", expr=of("payoff_ratio"), unit=units.PercentUnit, decimals=0, width=110),
            Column(title="The next is due", expr=by(f"vllm_watch_restart_next_scheduled_timestamp_seconds{{{OF_TARGETS}}} * 1000"), unit=FROM_NOW),
            Column(title="Watcher", label="instance"),
        ],
        "The budget is the group's, per hour and day. Recovered: the share of baseline throughput that the last measured restart "
        "recovered. vllm-watch journal lists who requested each, and why. " + runbook("restart.md"),
        sort="Breaker", nothing="Restarts are off everywhere.",
    )  # fmt: skip


def _why_not() -> list[Panel]:
    return [
        filled("Blocked restarts",
               [Column(title="Target", label="target", links=[links.to_engine()]), Column(title="Gate", label="gate"),
                Column(title="Wishes", expr=f"max by (instance, target, gate) (vllm_watch_restart_kept_back{{{OF_TARGETS}}})", width=90),
                Column(title="Watcher", label="instance")],
               "Every gate that refuses now; in words, and until when, on the watcher's page. " + runbook("restart.md"),
               sort="Target", nothing="Nothing waits.", descending=False),
        lines("Blocked restarts by gate", [(f"sum by (gate) (vllm_watch_restart_kept_back{{{OF_TARGETS}}})", "{{gate}}")],
              "Requests that each gate refuses, over time; approval: nobody has approved it yet.", units.Short,
              nothing="nothing was kept back"),
        stairs("Blocks by gate, total", [(f"sum by (blocker) (vllm_watch_restarts_blocked_total{{{OF_TARGETS}}})", "{{blocker}}")],
               "Counted since each watcher began. If one gate always refuses, check its setting.", units.Short,
               nothing="no gate has refused"),
    ]  # fmt: skip


def _done() -> list[Panel]:
    last = f"vllm_watch_restart_payoff_ratio{{{OF_TARGETS}}}"
    return [
        areas("Attempts by outcome", [(f"sum by (outcome) (vllm_watch_restarts_total{{{OF_TARGETS}}})", "{{outcome}}")],
              "By outcome, counted since each watcher started; dry_run: mode observe would have restarted it.", units.Short, OUTCOME_COLORS),
        stairs("Attempts by trigger", [(f"sum by (trigger) (vllm_watch_restarts_total{{{OF_TARGETS}}})", "{{trigger}}")],
               "Attempts that ended, by their trigger.", units.Short, nothing="no attempt has ended"),
        lines("Throughput regained", [(promql.worst(last, FEW, by="job, instance, target", least=True), "{{target}}")],
              "The lowest. Of the last measured restart, as a share of fresh throughput. Around 0 it was not worth it: take the cause for "
              "one that a restart does not cure. " + runbook("restart.md"), units.PercentUnit, bottom=None,
              nothing="no restart was measured yet"),
        lines("Throughput ÷ baseline", [(promql.worst(f"vllm_watch_engine_throughput_ratio{{{OF_TARGETS}}}", FEW, least=True), "{{target}} {{engine}}")],
              "The lowest, with the restarts marked: did it come back?", units.PercentUnit),
        lines("Restart budget left", [(promql.worst(f"vllm_watch_restart_budget_remaining{{{OF_TARGETS}}}", FEW, by="job, instance, target", least=True), "{{target}}")],
              "Restarts that a group has left, by hour or by day, whichever is less. If it needs more, restarts do not fix it.", units.Short,
              nothing="restarts are off, or the journal cannot be read"),
        stairs("Engine restarts seen", [(promql.by_group("sum", f"vllm_watch_engine_restarts_total{{{OF_TARGETS}}}"), "{{group}}")],
               "By group, from the engines' counters: those beyond the attempts were made by a supervisor, by hand, or by a crash.", units.Short,
               nothing="no engine is seen"),
    ]  # fmt: skip


def _states() -> Panel:
    shown = (
        f"{promql.states(OF_TARGETS)} and on (job, instance, target) vllm_watch_restart_mode_info"
    )
    return band("Engine state", [(shown, "{{target}} {{engine}}")],
                "Engines that may be restarted, with the attempts marked.", STATE_WORDS,
                nothing="restarts are off everywhere")  # fmt: skip


def board() -> dashboard.Dashboard:
    """The whole dashboard."""
    return assembled(
        links.RESTARTS,
        "Restarts that vllm-watch made, would have made or refused, and their results.",
        variables.of_fleet(),
        (
            Section("", _now(), 4, (5, 5, 3, 3, 3, 5)),
            Section("", [_targets()], 8, (24,)),
            Section("Blocked restarts", _why_not(), 8),
            Section("What was done", _done(), 8),
            Section("", [_states()], 8, (24,)),
        ),
        [*restarts(OF_TARGETS), *incidents(OF_TARGETS)],
    )
