"""What `vllm-watch replay` does: each target of a recording through a Watch of its own.

Apart from the command's arguments, so that its help text loads none of this.
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm_watch import config as configuration
from vllm_watch.cli.helpers.replay_summary import Summary
from vllm_watch.cli.read import reading_to_json
from vllm_watch.incidents.incident import IncidentEvent, published
from vllm_watch.samples.observation import Observation, Reading
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.host_watch import HostWatch, ServerLook
from vllm_watch.watch.watch import Watch


def replay(trace: Path, config_file: Path | None, prints: str) -> None:
    """Run the recording; print its `prints`: "incidents" or the final "state" as JSON, or a "summary".

    Raises:
        RecordingError: the recording cannot be read; incidents up to there have been printed.
        ConfigError: the configuration cannot be used.
    """
    config = configuration.load(config_file, environ=os.environ)
    targets: dict[str, _Replayed] = {}
    hosts = _Hosts()
    for observation in _observations(trace):
        replayed = targets.get(observation.target)
        if replayed is None:
            replayed = targets[observation.target] = _Replayed(observation.target, config)
        events = hosts.look(observation, targets)
        beside = hosts.of(observation.target).concerning(replayed.watch.target)
        events += replayed.watch.observe(observation, beside=beside)
        if prints == "incidents":
            for event in events:
                print(json.dumps(published(event)))
        elif prints == "summary":
            replayed.summary.add(observation, replayed.watch.signals, events)
    if not targets:
        print(f"vllm-watch: {trace} holds no observations", file=sys.stderr)
    for replayed in targets.values():
        if prints == "state":
            print(json.dumps(_state(replayed.watch)))
        elif prints == "summary":
            print(replayed.summary.text(replayed.watch.signals))


class _Replayed:
    """One target of the recording."""

    def __init__(self, url: str, config: configuration.Config) -> None:
        known = next((target for target in config.targets if target.url == url), None)
        slo = config.slo_for(known) if known else config.slo
        self.watch = Watch(known.name if known else url, config.signals, slo)
        self.summary = Summary(url)

    def on_host(self) -> ServerLook:
        """The last look at it, as its host takes it."""
        return ServerLook.of(self.watch.signals, self.watch.incidents)


class _Hosts:
    """The hosts of the recording, by the addresses of its targets: what is on one shares its GPUs."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostWatch] = {}

    def of(self, target: str) -> HostWatch:
        """The host of a target."""
        name = _host(target)
        if name not in self._hosts:
            self._hosts[name] = HostWatch(name)
        return self._hosts[name]

    def look(
        self, observation: Observation, targets: Mapping[str, _Replayed]
    ) -> list[IncidentEvent]:
        """Judge the GPUs that an observation carries."""
        if observation.gpus is None:
            return []
        name = _host(observation.target)
        servers = {
            each.watch.target: each.on_host() for url, each in targets.items() if _host(url) == name
        }
        return self.of(observation.target).look(
            observation.t, observation.monotonic_s, observation.gpus, servers
        )


def _host(target: str) -> str:
    return urlsplit(target).hostname or target


def _observations(trace: Path) -> Iterator[Observation]:
    readers: dict[str, Reader] = {}
    for raw in recording.read(trace):
        reader = readers.get(raw.target)
        if reader is None:
            reader = readers[raw.target] = Reader()
        yield recording.to_observation(raw, reader)


def _state(watch: Watch) -> dict[str, Any]:
    """What `read --json` says of the last body that could be read, and the state at the end."""
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
    """Records as JSON knows them; a number that JSON has not, is unknown."""
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
