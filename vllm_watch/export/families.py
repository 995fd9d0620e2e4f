"""The table of every exported metric: `python -m vllm_watch.export.families --markdown` prints docs/metrics.md."""

import re
import sys
from collections import Counter
from collections.abc import Hashable
from typing import TypeVar

from vllm_watch.export.engine_families import ENGINE_FAMILIES, TOTAL_FAMILIES
from vllm_watch.export.family import Family
from vllm_watch.export.gpu_families import GPU_FAMILIES
from vllm_watch.export.health_families import NOTIFIER_FAMILIES, STORE_FAMILIES, WEB_FAMILIES
from vllm_watch.export.incident_families import INCIDENT_FAMILIES
from vllm_watch.export.restart_families import RESTART_FAMILIES, RESTART_WATCHER_FAMILIES
from vllm_watch.export.target_families import SOURCE_FAMILIES, TARGET_FAMILIES, WATCHER_FAMILIES

FAMILIES: tuple[Family, ...] = (
    *WATCHER_FAMILIES, *WEB_FAMILIES, *STORE_FAMILIES, *NOTIFIER_FAMILIES, *RESTART_WATCHER_FAMILIES,
    *TARGET_FAMILIES, *INCIDENT_FAMILIES, *RESTART_FAMILIES,
    *ENGINE_FAMILIES, *TOTAL_FAMILIES, *SOURCE_FAMILIES, *GPU_FAMILIES,
)  # fmt: skip

_HEAD = """\
# Metrics

The metrics of vllm-watch's `/metrics`. This page is made from the code
(`python -m vllm_watch.export.families --markdown > docs/metrics.md`); a test fails when it is stale.

- All values are in base units: seconds, bytes, ratios from 0 to 1, degrees Celsius, hertz, watts.
- **Unknown values are absent, never 0.** A query that must distinguish the two uses `absent()` or `unless`.
- Rates, quantiles and shares are over `vllm_watch_signal_window_seconds`: no `rate()` around a `_per_second`.
- A scrape never makes the watcher ask anything. How old a result is: `time() - vllm_watch_target_last_observation_timestamp_seconds`.
- Join identity with `* on (target) group_left (group, pod, node) vllm_watch_target_info`, and for GPUs with
  `* on (gpu) group_left (index, name, host) vllm_watch_gpu_info`.
- A quantile within the lowest bucket is interpolated, and never above the mean ÷ (1 - q); page and `top` write `< 300 ms` there.
- Counters and histograms under "Engines, to add up" begin at 0 when the watcher first sees an engine and never go back while
  it runs: `rate()` and `sum()` them over engines. `signals: {totals: false}` leaves them out.
- Join with vLLM's own series where `instance` is the address that Prometheus scrapes:
  `vllm:num_requests_running * on (instance) group_left (target, group) label_replace(vllm_watch_target_info, "instance", "$1", "address", "(.+)")`.
- A summary has quantiles only. Beside these: the watcher's own `process_*` and `python_info`.

`otlp: {endpoint: "http://collector:4318/v1/metrics"}` pushes the same to an OpenTelemetry collector over HTTP, every 30 seconds
(`pip install 'vllm-watch[otlp]'`; [configuration.md](configuration.md#otlp)): the same names and labels, counters as cumulative
sums, everything else as gauges. The three latency histograms are pushed as `gen_ai.server.request.duration`,
`gen_ai.server.time_to_first_token` and `gen_ai.server.time_per_output_token` as well. The resource is `service.name` vllm-watch with `host.name`. The log has `otlp_fails` and `otlp_works_again`.

Below, a metric is a gauge unless noted. A value is absent if this vLLM, driver or GPU does not report it, if it is not configured, or not seen
yet; any other reason stands with the metric.
"""
_Value = TypeVar("_Value", bound=Hashable)
_USUAL = 3
_PLAIN = re.compile(
    r"Absent (before (the|vLLM)|(?:where|if) (this vLLM|the driver|no notifier|restarts are)|while the engine cannot"
    r"|until (the (target|first)|two|there)|without)[^.]*(\.\d[^.]*)*\."
)
"""What the head of the page says of all: what is not told, configured or seen yet is absent."""
_SECTIONS = (
    ("The watcher", (*WATCHER_FAMILIES, *WEB_FAMILIES)), ("Its memory", STORE_FAMILIES),
    ("Notifications", NOTIFIER_FAMILIES), ("Targets", TARGET_FAMILIES), ("Incidents", INCIDENT_FAMILIES),
    ("Restarts", (*RESTART_WATCHER_FAMILIES, *RESTART_FAMILIES)),
    ("Engines", ENGINE_FAMILIES), ("Engines, to add up", TOTAL_FAMILIES), ("Sources", SOURCE_FAMILIES), ("GPUs", GPU_FAMILIES),
)  # fmt: skip


def markdown() -> str:
    """The text of docs/metrics.md."""
    return _HEAD + "".join(_section(title, families) for title, families in _SECTIONS)


def _section(title: str, families: tuple[Family, ...]) -> str:
    """Labels and absence that most of its families share stand once, at its head."""
    labels = _usual([family.all_labels for family in families])
    absent = _usual([family.absent for family in families])
    usual = f"Labels, unless noted: {_quoted(labels)}. " if labels else ""
    usual += f"Unless noted otherwise: {absent[0].lower()}{absent[1:]}" if absent else ""
    rows = [_row(family, labels or (), absent or "") for family in families]
    return "".join([f"\n## {title}\n\n", f"{usual.strip()}\n\n" if usual else "", *rows])


def _usual(values: list[_Value]) -> _Value | None:
    """What at least three of them are."""
    value, times = Counter(values).most_common(1)[0]
    return value if times >= _USUAL and value else None


def _quoted(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def _row(family: Family, labels: tuple[str, ...], absent: str) -> str:
    own = _quoted(family.all_labels) if family.all_labels != labels else ""
    if set(labels) < set(family.all_labels):
        own = f"also {_quoted(tuple(e for e in family.all_labels if e not in labels))}"
    kind = "" if family.kind == "gauge" else family.kind
    about = ", ".join(filter(None, (kind, own)))
    plain = family.absent in ("", absent) or _PLAIN.fullmatch(family.absent)
    told = "" if plain else f" *{family.absent}*"
    said = re.sub(",? over the signal window", "", family.help)  # the head says so of all
    return f"- `{family.name}`{f' ({about})' if about else ''}: {said}{told}\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m vllm_watch.export.families --markdown")
    sys.stdout.write(markdown())
