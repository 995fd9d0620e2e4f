"""Judge a recording, or metrics stored in Prometheus, as the daemon would."""

import argparse
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from vllm_watch import config as configuration
from vllm_watch.cli.helpers import connection, exit_status, options
from vllm_watch.cli.helpers.terminal import Progress
from vllm_watch.cli.read import plain, reading_to_json
from vllm_watch.errors import RecordingError, WatchError
from vllm_watch.incidents.incident import IncidentEvent, published
from vllm_watch.samples.observation import Observation, Reading
from vllm_watch.signals.records import EngineSignals, TargetSignals
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.story.base import severity_word
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.host_watch import HostWatch, SiteWatch
from vllm_watch.watch.watch import Watch

HELP = """\
Judge a recording as if it were live, at full speed, and report its incidents. The exit status is 0
whatever it finds; an empty or unreadable recording is an error (2).

For a log of vLLM use `vllm-watch diagnose vllm.log`.

With --prometheus it judges the stored history of every vLLM that a Prometheus (Thanos, Mimir, VictoriaMetrics)
scrapes: the incidents, the alerts that fired during them and at healthy times, and the faults that are too short
for the scrape interval. --report writes the same as one HTML file.

examples:
  vllm-watch replay incident.jsonl.gz                  # a summary for people
  vllm-watch replay incident.jsonl.gz --json           # its incidents, one JSON object per line
  vllm-watch replay incident.jsonl.gz --state --json   # the state at its end, one object per target
  vllm-watch replay --prometheus http://prometheus:9090 --since 7d
  vllm-watch replay --prometheus https://mimir/prometheus --header 'X-Scope-OrgID: llm' --match '{namespace="chat"}' --report week.html"""

_ONLY_PROMETHEUS = ("since", "until", "match", "report", "ca_file", "cert_file", "credentials_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("trace", metavar="TRACE", type=Path, nargs="?", help="a .jsonl.gz or .jsonl recording")
    add("--config", metavar="FILE", type=Path,
        help="windows, objectives and thresholds to judge by")  # fmt: skip
    add("--json", action="store_true", help="print only incidents, as JSON lines")
    add("--state", action="store_true", help="print the state at the end, always as JSON")
    group = parser.add_argument_group("the history of a Prometheus")
    add = group.add_argument
    add("--prometheus", metavar="URL", help="its address, with its path if it has one")
    moment = partial(options.moment, now_t=time.time())
    parser.set_defaults(moment=moment)
    add("--since", metavar="T", type=moment, help="start: 12h or 7d ago, a date (local time), or Unix seconds (default: 7d)")  # fmt: skip
    add("--until", metavar="T", type=moment, help="end (default: now)")
    add("--match", metavar="SELECTOR", help="only servers with these labels, such as '{namespace=\"chat\"}'")  # fmt: skip
    add("--report", metavar="FILE", type=Path, help="write one HTML file")
    add("--header", metavar="NAME: VALUE", action="append", default=[], help="send this header; repeatable")  # fmt: skip
    add("--ca-file", metavar="FILE", type=Path, help="CAs that sign its certificate, in PEM")
    add("--cert-file", metavar="FILE", type=Path, help="your certificate with its key, in PEM")
    add("--credentials-file", metavar="FILE", type=Path, help="file with USER:PASSWORD")


def run(arguments: argparse.Namespace) -> int:
    if arguments.prometheus is not None:
        _of_prometheus(arguments)
        return exit_status.FINE
    given = next((name for name in _ONLY_PROMETHEUS if getattr(arguments, name) is not None), None)
    if given is not None:
        option = f"--{given.replace('_', '-')}"
        raise WatchError(f"{option} without --prometheus", "add --prometheus URL")
    if arguments.trace is None:
        raise WatchError("no recording given", "give a recording or --prometheus URL")
    prints = "incidents" if arguments.json else "summary"
    replay(arguments.trace, arguments.config, "state" if arguments.state else prints)
    return exit_status.FINE


def _of_prometheus(arguments: argparse.Namespace) -> None:
    from vllm_watch.cli.helpers.history import judge  # noqa: PLC0415 - brings aiohttp

    if arguments.trace is not None or arguments.state:
        raise WatchError("--prometheus with a recording or --state", "use one or the other")
    if "://" not in arguments.prometheus:
        arguments.prometheus = f"http://{arguments.prometheus}"
    arguments.url = arguments.prometheus
    there = connection.of(arguments, option="--prometheus")
    arguments.prometheus = there.url
    for name, usual in (("until", "0s"), ("since", "7d")):
        if getattr(arguments, name) is None:
            setattr(arguments, name, arguments.moment(usual))
    if arguments.since >= arguments.until:
        raise WatchError("--since is not before --until", "write an earlier moment: --since 7d")
    headers = dict(map(_header, arguments.header)) | there.headers()
    judge(arguments, headers, there.tls())


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip().isprintable():
        raise WatchError("--header: the value (not shown) is not a header", "write 'NAME: VALUE'")
    return name.strip(), value.strip()


_TOLD_EVERY = 200  # observations per progress update

ENGINES_MAX = 4000
"""A recording may have at most this many engines. An engine takes 40 kB of memory, but only a few bytes of the file."""


def replay(trace: Path, config_file: Path | None, prints: str) -> None:
    """Print the "incidents", the final "state" or a "summary". Raises ConfigError or RecordingError."""
    config = configuration.load(config_file, environ=os.environ)
    site = SiteWatch(
        partial(_watch, config), make_host=partial(HostWatch, thresholds=config.detectors)
    )
    summaries: dict[str, Summary] = {}
    for observation in _observations(trace):
        events, url = site.look(observation), observation.target
        if prints == "incidents":
            for event in events:
                print(json.dumps(published(event)))
        elif prints == "summary":
            summary = summaries.setdefault(url, Summary(url))
            summary.add(observation, site.watches[url].signals, events)
    if not site.watches:
        cause = f"{trace} contains no complete observation: it is empty or cut short"
        raise RecordingError(cause, "give a file that `vllm-watch record` wrote")
    for url, watch in site.watches.items():
        if prints == "state":
            print(json.dumps(_state(watch)))
        elif prints == "summary":
            print(visible_lines(summaries[url].text(watch.signals)))


def _watch(config: configuration.Config, url: str) -> Watch:
    known = next((target for target in config.targets if target.url == url), None)
    if known is None:
        return Watch(url, config.signals, config.slo, thresholds=config.detectors)
    slo, thresholds = config.slo_for(known), config.detectors_for(known)
    return Watch(known.name, config.signals, slo, thresholds=thresholds)


def _observations(trace: Path) -> Iterator[Observation]:
    readers: defaultdict[str, Reader] = defaultdict(Reader)
    engines: Counter[str] = Counter()
    progress = Progress()
    for number, raw in enumerate(recording.read(trace)):
        if not number % _TOLD_EVERY:
            moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(raw.t))
            progress.tell(f"{trace.name}: {number} scrapes, up to {moment} UTC")
        observation = recording.to_observation(raw, readers[raw.target])
        seen = 0 if observation.reading is None else len(observation.reading.engines)
        engines[raw.target] = max(seen, engines[raw.target])
        if engines.total() > ENGINES_MAX:
            cause = f"{trace}: the recording has over {ENGINES_MAX} engines up to here"
            raise RecordingError(cause, "give a file that `vllm-watch record` wrote")
        yield observation
    progress.close()


def _state(watch: Watch) -> dict[str, Any]:
    signals = watch.signals
    why_not = signals.why_not if signals else None
    reading = watch.reading or Reading(vllm=False, why_not=why_not)
    said = reading_to_json(reading)
    if signals is not None:
        said |= {name: getattr(signals, name) for name in ("target", "t", "state")}
        said["states"] = {name: engine.state for name, engine in signals.engines.items()}
        said["signals"] = plain(signals)
    return said


_CHANGES_SHOWN = 8
_GAP_INTERVALS = 3


class Summary:
    """Collects numbers during a replay."""

    def __init__(self, target: str) -> None:
        self._target = target or "(no target named)"
        self._times: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._seconds_in: defaultdict[str, float] = defaultdict(float)  # by state
        self._changes: list[tuple[float, str, str]] = []  # Unix seconds, state, reason
        self._events: list[IncidentEvent] = []
        self._gpus: int | None = None

    def add(
        self,
        observation: Observation,
        signals: TargetSignals | None,
        events: Iterable[IncidentEvent],
    ) -> None:
        self._outcomes[observation.scrape.outcome] += 1
        self._events += events
        if observation.gpus is not None:
            self._gpus = max(self._gpus or 0, len(observation.gpus))
        if self._changes and self._times:
            state, passed = self._changes[-1][1], max(0.0, observation.t - self._times[-1])
            self._seconds_in[state] += passed
        self._times.append(observation.t)
        if signals and (not self._changes or self._changes[-1][1] != signals.state):
            self._changes.append((observation.t, signals.state, signals.state_text))

    def text(self, signals: TargetSignals | None) -> str:
        rows = [("span", self._span()), ("scrapes", self._scrapes())]
        if signals is not None:
            gpus = "not recorded" if self._gpus is None else str(self._gpus)
            rows += [("vLLM", _server(signals)), ("GPUs", gpus)]
            rows += [(f"engine {name}", _engine(each)) for name, each in signals.engines.items()]
            rows += [("states", self._shares()), *self._newest_changes()]
            rows.append(("at the end", f"{signals.state}: {signals.state_text}"))
        for event in self._events:
            one = event.incident
            told = f"{event.event}: {severity_word(one.severity)}, {one.kind} {one.cause}"
            rows.append(("incident", f"{_clock(event.t)} {told}: {one.summary}"))
        return "\n".join([self._target, *(f"  {name:<11} {said}" for name, said in rows)])

    def _span(self) -> str:
        first, last = min(self._times), max(self._times)
        day = time.strftime("%Y-%m-%d", time.gmtime(first))
        return f"{day} {_clock(first)} to {_clock(last)} UTC, {_duration(last - first)}"

    def _scrapes(self) -> str:
        counts = self._outcomes.most_common()
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in counts)
        gaps = sorted(later - earlier for earlier, later in pairwise(self._times))
        if not gaps:
            return outcomes
        median = gaps[len(gaps) // 2]
        missed = sum(gap > _GAP_INTERVALS * median for gap in gaps)
        holes = f", {missed} hole{'s' * (missed > 1)} of up to {_duration(gaps[-1])}"
        return f"{outcomes}; every {median:.3g} s{holes if missed else ''}"

    def _shares(self) -> str:
        whole = sum(self._seconds_in.values())
        if not whole:
            return ", ".join(dict.fromkeys(state for _, state, _ in self._changes))
        longest_first = sorted(self._seconds_in.items(), key=lambda each: -each[1])
        return ", ".join(f"{state} {seconds / whole:.1%}" for state, seconds in longest_first)

    def _newest_changes(self) -> list[tuple[str, str]]:
        shown = self._changes[-_CHANGES_SHOWN:]
        rows = [("", f"{_clock(t)} {state}: {text}") for t, state, text in shown]
        before = len(self._changes) - len(shown)
        return [("", f"… {before} changes before these"), *rows] if before else rows


def _server(signals: TargetSignals) -> str:
    if signals.engine_kind is None and signals.why_not:
        return signals.why_not
    engine = f"{signals.engine_kind} engine" if signals.engine_kind else None
    known = (signals.version, engine, *signals.models)
    return ", ".join(each for each in known if each) or "unknown"


def _engine(engine: EngineSignals) -> str:
    numbers = (
        ("running", engine.requests_running, ".0f"),
        ("waiting", engine.requests_waiting, ".0f"),
        ("KV cache", engine.kv_cache_usage_ratio, ".0%"),
        ("tokens/s", engine.generation_tokens_per_second, ".1f"),
    )
    said = [f"{name} {value:{form}}" for name, value, form in numbers if value is not None]
    if engine.restarts:
        said.append(f"{engine.restarts} restart{'s' * (engine.restarts != 1)} seen")
    return ", ".join([engine.model_name, *said] if engine.model_name else said)


def _clock(t: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(t))


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
