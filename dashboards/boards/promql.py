"""PromQL that several dashboards need: which targets, to which group they belong, which are the worst."""

from vllm_watch.samples.target import HOST_PREFIX, WATCHER
from vllm_watch.signals.state import STATES

from .style import IN_TROUBLE, SEVERITY_RANKS

WATCHERS = 'instance=~"$instance"'
OF_TARGETS = f'{WATCHERS}, target=~"$target"'
OF_NO_GROUP = f"{WATCHER}|{HOST_PREFIX}.+"
"""What many targets share is the watcher's; what is wrong with GPUs is their host's."""

OF_ALL = f'{WATCHERS}, target=~"$target|{OF_NO_GROUP}"'
ONE_TARGET = 'instance="$instance", target="$target"'
ENGINES = (
    f'{ONE_TARGET}, engine=~"$engine|"'  # a target that shows no engine has one without a name
)

GROUP = "* on (job, instance, target) group_left (group) vllm_watch_target_info"
ENGINE_LABELS = "job, instance, target, engine"
TROUBLE = "|".join(IN_TROUBLE)
TOP = 30  # lines of a chart that can still be told apart on a wall


def by_group(operator: str, expr: str) -> str:
    """What belongs to targets, as one number for each group."""
    return f"{operator} by (group) (({expr}) {GROUP})"


def states(selector: str) -> str:
    """One series for each engine, whose value is the number of its state.

    Only the state that holds is joined: with all ten, 500 engines took half a minute of Prometheus' time.
    """
    numbered = " or ".join(
        f'(vllm_watch_engine_state{{{selector}, state="{state}"}} == 1) * {number}'
        for number, state in enumerate(STATES)
    )
    return f"max by ({ENGINE_LABELS}) ({numbered})"


def ranked_incidents(selector: str) -> str:
    """Open incidents, each with the rank of its severity."""
    return " or ".join(
        f'{rank} * vllm_watch_incident_open{{{selector}, severity="{severity}"}}'
        for severity, rank in SEVERITY_RANKS.items()
    )


def worst(series: str, count: int, *, by: str = ENGINE_LABELS, least: bool = False) -> str:
    """Of a metric's series those that were worst within the whole time range: the same all along the chart."""
    top, over = ("bottomk", "min_over_time") if least else ("topk", "max_over_time")
    return f"{series} and on ({by}) {top}({count}, {over}({series}[$__range] @ end()))"


def most_troubled(selector: str) -> str:
    """States of up to TOP engines; of more those that were in trouble longest within the time range."""
    trouble = f'vllm_watch_engine_state{{{selector}, state=~"{TROUBLE}"}}'
    over = f"sum by ({ENGINE_LABELS}) (sum_over_time({trouble}[$__range] @ end()))"
    return f"{states(selector)} and on ({ENGINE_LABELS}) topk({TOP}, {over})"
