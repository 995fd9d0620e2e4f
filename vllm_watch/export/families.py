"""The table of every exported metric: `python -m vllm_watch.export.families --markdown` prints docs/metrics.md."""

import sys

from vllm_watch.export.engine_families import ENGINE_FAMILIES
from vllm_watch.export.family import Family
from vllm_watch.export.gpu_families import GPU_FAMILIES
from vllm_watch.export.incident_families import INCIDENT_FAMILIES
from vllm_watch.export.notifier_families import NOTIFIER_FAMILIES
from vllm_watch.export.restart_families import RESTART_FAMILIES, RESTART_WATCHER_FAMILIES
from vllm_watch.export.store_families import STORE_FAMILIES
from vllm_watch.export.target_families import SOURCE_FAMILIES, TARGET_FAMILIES, WATCHER_FAMILIES
from vllm_watch.export.total_families import TOTAL_FAMILIES
from vllm_watch.export.web_families import WEB_FAMILIES

FAMILIES: tuple[Family, ...] = (
    *WATCHER_FAMILIES, *WEB_FAMILIES, *STORE_FAMILIES, *NOTIFIER_FAMILIES, *RESTART_WATCHER_FAMILIES,
    *TARGET_FAMILIES, *INCIDENT_FAMILIES, *RESTART_FAMILIES,
    *ENGINE_FAMILIES, *TOTAL_FAMILIES, *SOURCE_FAMILIES, *GPU_FAMILIES,
)  # fmt: skip

_HEAD = """\
# Metrics

What `/metrics` of vllm-watch says. This page is made from the code
(`python -m vllm_watch.export.families --markdown > docs/metrics.md`); a test fails when it is stale.

- All values are in base units: seconds, bytes, ratios from 0 to 1, degrees Celsius, hertz, watts.
- **What is unknown is absent, never 0.** A query that must tell the two apart uses `absent()` or `unless`.
- Rates, quantiles and shares are over `vllm_watch_signal_window_seconds`: do not put `rate()` around a `_per_second`.
- Everything is the last result that the watcher has; a scrape never makes it ask anything. How old a result is:
  `time() - vllm_watch_target_last_observation_timestamp_seconds`.
- Series of a target or GPU that is gone are gone with the next scrape.
- Join identity with `* on (target) group_left (group, pod, node) vllm_watch_target_info`, and for GPUs with
  `* on (gpu) group_left (index, name, host) vllm_watch_gpu_info`.
- A quantile within the lowest bucket is interpolated, and never above the mean ÷ (1 - q); page and `top` write `< 300 ms` there.
- Counters and histograms under "Engines, to add up" begin at 0 when the watcher first sees an engine and never go back while
  it runs, whatever the engine's own do: `rate()` and `sum()` them over engines. `signals: {totals: false}` leaves them out.
- Join with vLLM's own series where `instance` is the address that Prometheus scrapes:
  `vllm:num_requests_running * on (instance) group_left (target, group) label_replace(vllm_watch_target_info, "instance", "$1", "address", "(.+)")`.
- A summary here has quantiles only; its sum and count would be over another time than the quantiles.
- Beside these, the watcher's own `process_*` and `python_info` tell what it costs.
"""
_SECTIONS = (
    ("The watcher", (*WATCHER_FAMILIES, *WEB_FAMILIES)), ("Its memory", STORE_FAMILIES),
    ("Notifications", NOTIFIER_FAMILIES), ("Targets", TARGET_FAMILIES), ("Incidents", INCIDENT_FAMILIES),
    ("Restarts", (*RESTART_WATCHER_FAMILIES, *RESTART_FAMILIES)),
    ("Engines", ENGINE_FAMILIES), ("Engines, to add up", TOTAL_FAMILIES), ("Sources", SOURCE_FAMILIES), ("GPUs", GPU_FAMILIES),
)  # fmt: skip


def markdown() -> str:
    """The text of docs/metrics.md."""
    parts = [_HEAD]
    for title, families in _SECTIONS:
        parts.append(
            f"\n## {title}\n\n| metric | type | labels | meaning | absence |\n|---|---|---|---|---|\n"
        )
        parts.extend(_row(family) for family in families)
    return "".join(parts)


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.all_labels)
    cells = (f"`{family.name}`", family.kind, labels, family.help, family.absent)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m vllm_watch.export.families --markdown")
    sys.stdout.write(markdown())
