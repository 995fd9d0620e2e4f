"""All exported metrics. The families of the watcher itself and of the sources are here.

`python -m vllm_watch.export.families --markdown` prints docs/metrics.md.
"""

import re
import sys
from collections import Counter
from operator import attrgetter

from vllm_watch import __version__
from vllm_watch.export.engine_families import ENGINE_FAMILIES, TOTAL_FAMILIES
from vllm_watch.export.family import Family, by_label, is_set, one_hot, optional, rows
from vllm_watch.export.gpu_families import GPU_FAMILIES
from vllm_watch.export.target_families import (
    INCIDENT_FAMILIES,
    RESTART_FAMILIES,
    TARGET_FAMILIES,
)

GPU_STATUSES = ("ok", "no_driver", "hung", "error")

_gauge = rows("vllm_watch_", "watcher")
_counter = rows("vllm_watch_", "watcher", "counter")
_info = rows("vllm_watch_", "watcher", "info")
_gpu_status = one_hot("status", GPU_STATUSES)
_errors = by_label("errors")

WATCHER_FAMILIES: tuple[Family, ...] = (
    _info("build_info", "Version of the running vllm-watch.",
          labels=("version",), series=lambda _: (((__version__,), 1),)),
    _info("external_url_info", "Address of the status page (external_url); links in alerts begin with it.",
          "Absent where external_url is not set.", labels=("url",),
          series=lambda board: None if board.external_url is None else (((board.external_url,), 1),)),
    _gauge("signal_window_seconds", "Seconds over which rates, quantiles and shares are computed.",
           value=attrgetter("window_seconds")),
    _gauge("targets", "Watched targets.", value=lambda board: len(board.targets)),
    _gauge("gpu_reading_status",
           "How the last poll of the GPUs ended: 1 for the status, 0 for the others. "
           "no_driver is a machine without GPUs, hung a driver that did not answer in time.",
           "Absent until the first poll.", labels=("status",),
           series=lambda board: board.gpus and _gpu_status(board.gpus)),
)  # fmt: skip

_NO_WEB_CONFIG = "Absent without a web configuration."

WEB_FAMILIES: tuple[Family, ...] = (
    _gauge("web_config_reload_successful",
           "1 if the current files of the web configuration and its certificates are in use; 0 if they are "
           "not usable and the previous ones stay in use.", _NO_WEB_CONFIG,
           value=optional("web.problem", lambda problem: float(problem is None))),
    _gauge("web_config_last_reload_success_timestamp_seconds",
           "Unix time at which the web configuration or its certificates were last loaded.", _NO_WEB_CONFIG,
           value=optional("web.last_success_timestamp_seconds")),
)  # fmt: skip

STORE_FAMILIES: tuple[Family, ...] = (
    _gauge("store_last_success_timestamp_seconds",
           "Unix time of the last good read or write of the state folder, at least once a minute.",
           "Absent without a state folder, and until it could be read or written.",
           value=optional("store.last_success_timestamp_seconds")),
    _counter("store_errors_total",
             "Failed uses of the state folder, by reason: full, not_writable, refused (another "
             "vllm-watch holds it, or a newer one wrote it), damaged, entry (one entry could not be used), io.",
             "Absent without a state folder; a reason that never occurred is absent.", labels=("reason",),
             series=lambda board: board.store and _errors(board.store)),
)  # fmt: skip


_of_notifier = rows("vllm_watch_", "notifier")
_NO_NOTIFIER = "Absent if no notifier is configured."

NOTIFIER_FAMILIES: tuple[Family, ...] = (
    rows("vllm_watch_", "notifier", "counter")(
        "notifications_total",
        "Messages by outcome: sent, failed (one try, which is repeated), and dropped (too old, too many, "
        "or refused).", _NO_NOTIFIER, labels=("outcome",),
        series=lambda health: [((outcome,), count) for outcome, count in health.outcomes.items()]),
    _of_notifier("notifications_queue_length", "Messages that wait to be sent.", _NO_NOTIFIER, value=attrgetter("queue")),
    _of_notifier("notifier_failing", "1 if the last try failed, else 0.", _NO_NOTIFIER + " Absent until the first try.",
                 value=lambda health: None if health.ok is None else int(not health.ok)),
    _of_notifier("notifications_last_success_timestamp_seconds", "Unix time of the last delivered message.",
                 _NO_NOTIFIER + " Absent until one was, since the watcher began.",
                 value=attrgetter("last_success_timestamp_seconds")),
)  # fmt: skip

RESTART_WATCHER_FAMILIES: tuple[Family, ...] = (
    _gauge("restart_paused", "1 while a person has paused all restarts, else 0.",
           "Absent if restarts are off everywhere.", value=optional("restarts.paused", is_set)),
    _gauge("restart_journal_ok", "1 if the restart journal can be read and written, else 0: then nothing is restarted.",
           "Absent where restarts are off everywhere.",
           value=optional("restarts.journal_trouble", lambda trouble: int(trouble is None))),
)  # fmt: skip

_of_source = rows("vllm_watch_source_", "source")
_count_of_source = rows("vllm_watch_source_", "source", "counter")

SOURCE_FAMILIES: tuple[Family, ...] = (
    _of_source("last_success_timestamp_seconds",
               "Unix time of the source's last good answer; `target` is empty for a source of the whole host.",
               "Absent until the first good answer, and for `nvml` on a machine without a GPU driver.",
               value=attrgetter("last_success_timestamp_seconds")),
    _of_source("duration_seconds", "Seconds that the last call to the source took, successful or not.",
               "Absent until the first call.", value=attrgetter("duration_seconds")),
    _count_of_source("calls_total", "Finished calls to the source, successful or not.",
                     "Absent until the first call.", value=attrgetter("calls")),
    _count_of_source("errors_total",
                     "Failed calls to the source, by reason (the outcomes of vllm_watch_target_scrape_outcome; hung, error).",
                     "A reason that never occurred is absent.", labels=("reason",), series=_errors),
)  # fmt: skip


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
    labels, times = Counter(family.all_labels for family in families).most_common(1)[0]
    labels = labels if times >= _USUAL else ()
    usual = f"Labels: {', '.join(f'`{label}`' for label in labels)}.\n\n" if labels else ""
    return "".join([f"\n## {title}\n\n", usual, *(_row(family, labels) for family in families)])


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
