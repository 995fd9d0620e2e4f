"""Judge a recording as the daemon does."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vllm_watch import config as configuration
from vllm_watch.cli.helpers.progress import Progress
from vllm_watch.cli.helpers.replay_summary import Summary
from vllm_watch.cli.read import reading_to_json
from vllm_watch.errors import RecordingError
from vllm_watch.incidents.incident import published
from vllm_watch.samples.observation import Observation, Reading
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.site_watch import SiteWatch
from vllm_watch.watch.watch import Watch

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
    readers: dict[str, Reader] = {}
    engines: dict[str, int] = {}
    progress = Progress()
    for number, raw in enumerate(recording.read(trace)):
        if not number % _TOLD_EVERY:
            progress.tell(
                f"{trace.name}: {number} scrapes, up to {time.strftime('%Y-%m-%d %H:%M', time.gmtime(raw.t))} UTC"
            )
        reader = readers.get(raw.target)
        if reader is None:
            reader = readers[raw.target] = Reader()
        observation = recording.to_observation(raw, reader)
        seen = 0 if observation.reading is None else len(observation.reading.engines)
        engines[raw.target] = max(seen, engines.get(raw.target, 0))
        if sum(engines.values()) > ENGINES_MAX:
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
        said["target"] = signals.target
        said["t"], said["state"] = signals.t, signals.state
        said["states"] = {name: engine.state for name, engine in signals.engines.items()}
        said["signals"] = _plain(signals)
    return said


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
