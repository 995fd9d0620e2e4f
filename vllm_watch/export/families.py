"""All exported metrics. `python -m vllm_watch.export.families --markdown` prints docs/metrics.md."""

import re
import sys
from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

from vllm_watch.export.engine_families import ENGINE_FAMILIES, TOTAL_FAMILIES
from vllm_watch.export.family import Family
from vllm_watch.export.gpu_families import GPU_FAMILIES
from vllm_watch.export.target_families import (
    INCIDENT_FAMILIES,
    RESTART_FAMILIES,
    TARGET_FAMILIES,
)
from vllm_watch.export.watcher_families import (
    NOTIFIER_FAMILIES,
    RESTART_WATCHER_FAMILIES,
    SOURCE_FAMILIES,
    STORE_FAMILIES,
    WATCHER_FAMILIES,
    WEB_FAMILIES,
)

FAMILIES: tuple[Family, ...] = (
    *WATCHER_FAMILIES, *WEB_FAMILIES, *STORE_FAMILIES, *NOTIFIER_FAMILIES, *RESTART_WATCHER_FAMILIES,
    *TARGET_FAMILIES, *INCIDENT_FAMILIES, *RESTART_FAMILIES,
    *ENGINE_FAMILIES, *TOTAL_FAMILIES, *SOURCE_FAMILIES, *GPU_FAMILIES,
)  # fmt: skip

_HEAD = """\
# Metrics

Query and alert on these metric families of `/metrics`. Their HELP texts have details, such as when a family is absent. This page is generated
(`python -m vllm_watch.export.families --markdown > docs/metrics.md`).

- Units are base units: seconds, bytes, ratios from 0 to 1, degrees Celsius, hertz, watts. Counters end in `_total`; `_info` is 1;
  families without a type are gauges. Braces show labels in addition to those of the section.
- **Unknown values are absent, never 0**: not exported by this vLLM, driver or GPU, not configured, or not observed yet.
  If a query must distinguish unknown from 0, use `absent()` or `unless`.
- Rates, quantiles and shares cover `vllm_watch_signal_window_seconds`: do not apply `rate()` to a `_per_second`.
- The age of a result is `time() - vllm_watch_target_last_observation_timestamp_seconds`.
- To add identity labels, use `* on (target) group_left (group, pod, node) vllm_watch_target_info`, and for GPUs with
  `* on (gpu) group_left (index, name, host) vllm_watch_gpu_info`.
- Counters and histograms under "Engine totals" begin at 0 when the watcher first sees an engine, and never decrease while
  the watcher runs: apply `rate()` and `sum()` over engines. `signals: {totals: false}` removes them.
- To join with vLLM's own series, if `instance` is the address that Prometheus scrapes:
  `vllm:num_requests_running * on (instance) group_left (target, group) label_replace(vllm_watch_target_info, "instance", "$1", "address", "(.+)")`.
- Summaries have only quantiles. A quantile within the lowest bucket is interpolated; the page and `top` then show `< 300 ms`.

`otlp: {endpoint: "http://collector:4318/v1/metrics"}` ([keys](configuration.md#otlp)) pushes the families to an OpenTelemetry collector: counters as cumulative
sums, the rest as gauges. Latency histograms are also pushed as `gen_ai.server.request.duration`, `gen_ai.server.time_to_first_token` and
`gen_ai.server.time_per_output_token`. It needs `pip install 'vllm-watch[otlp]'`.
"""
_Value = TypeVar("_Value", bound=Hashable)
_USUAL = 3
_CLAUSE = re.compile(r"(?<=[.)]) (?=[A-Z])|[,:] 1 for the|; (?![^(]*\))|: (?=the w)")
_OF_ALL = re.compile(
    r",? over the signal window|: the quantiles of what was observed within the signal window|, else 0(?=\.)|, in seconds|, 0 to 1|, as vLLM gave them last"
    r"|,? since the watcher first saw the engine"
)
"""Phrases omitted from docs/metrics.md, because the introduction contains them."""
_SECTIONS = (
    ("The watcher", (*WATCHER_FAMILIES, *WEB_FAMILIES)), ("State folder", STORE_FAMILIES),
    ("Notifications", NOTIFIER_FAMILIES), ("Targets", TARGET_FAMILIES), ("Incidents", INCIDENT_FAMILIES),
    ("Restarts", (*RESTART_WATCHER_FAMILIES, *RESTART_FAMILIES)),
    ("Engines", ENGINE_FAMILIES), ("Engine totals", TOTAL_FAMILIES), ("Sources", SOURCE_FAMILIES), ("GPUs", GPU_FAMILIES),
)  # fmt: skip


def markdown() -> str:
    """Return the text of docs/metrics.md."""
    return _HEAD + "".join(_section(title, families) for title, families in _SECTIONS)


def _section(title: str, families: tuple[Family, ...]) -> str:
    labels = _usual([family.all_labels for family in families])
    usual = f"Labels: {_quoted(labels)}.\n\n" if labels else ""
    return "".join(
        [f"\n## {title}\n\n", usual, *(_row(family, labels or ()) for family in families)]
    )


def _usual(values: list[_Value]) -> _Value | None:
    value, times = Counter(values).most_common(1)[0]
    return value if times >= _USUAL and value else None


def _quoted(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _row(family: Family, labels: tuple[str, ...]) -> str:
    own = tuple(each for each in family.all_labels if each not in labels)
    if not set(labels) <= set(family.all_labels):
        own = family.all_labels
    shown = f"{family.name}{{{','.join(own)}}}" if own else family.name
    kind = f" ({family.kind})" if family.kind in ("summary", "histogram") else ""
    said = _CLAUSE.split(_OF_ALL.sub("", family.help))[0].rstrip(".")
    return f"- `{shown}`{kind}: {said}.\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m vllm_watch.export.families --markdown")
    sys.stdout.write(markdown())
