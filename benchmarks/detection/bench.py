"""One recording judged by everybody, and the figures over all of them."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.detection import baselines, score
from benchmarks.detection.runs import Played, Run, play
from benchmarks.detection.scenarios import SCRIPTS
from vllm_watch.incidents.incident import published
from vllm_watch.samples.observation import Observation
from vllm_watch.sources import recording
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.trace_line import to_line
from vllm_watch.watch.host_watch import SiteWatch

OURS = "vllm-watch"
_TRUTH = ".truth.json"
_BYTES_MAX = 1 << 32

Result = dict[str, score.Score]  # whose → one recording's score


def ours(observations: Iterable[Observation]) -> list[dict[str, Any]]:
    """What the daemon would have told, live."""
    site = SiteWatch()
    events = [published(event) for seen in observations for event in site.look(seen)]
    if site.failures:
        raise RuntimeError(f"a detector broke: {site.failures}")
    return events


def judge(observations: Sequence[Observation], truth: dict[str, Any]) -> Result:
    """Let everybody judge one recording."""
    result = {OURS: score.score(truth, ours(observations))}
    seen = baselines.tracks(observations)
    for name, rule in baselines.BASELINES.items():
        result[name] = score.score(truth, baselines.predict(rule, seen))
    return result


def judge_run(run: Run) -> Result:
    """Play one of the lab's runs and let everybody judge it."""
    played = play(run, SCRIPTS[run.scenario])
    return judge(played.observations, played.truth)


def judge_file(truth_file: Path) -> Result:
    """Judge the recording that belongs to a file of truth."""
    truth = json.loads(truth_file.read_text())
    trace = truth_file.with_name(truth_file.name.removesuffix(_TRUTH) + ".jsonl.gz")
    readers: dict[str, Reader] = {}
    observations = []
    for raw in recording.read(trace):
        reader = readers.setdefault(raw.target, Reader())
        observations.append(recording.to_observation(raw, reader))
    return judge(observations, truth)


def truth_files(dirs: Iterable[Path]) -> list[Path]:
    """All that is labelled in these folders."""
    found = [file for each in dirs for file in sorted(each.glob(f"*{_TRUTH}"))]
    if not found:
        raise SystemExit("bench_detection: no *.truth.json there; give a folder that holds them")
    return found


def write_run(run: Run, folder: Path) -> Path:
    """Write one of the lab's runs as a recording with its truth."""
    played = play(run, SCRIPTS[run.scenario], with_bodies=True)
    trace = folder / f"{run.name}.jsonl.gz"
    with gzip.open(trace, "wb", compresslevel=6) as file:
        for line in lines(played):
            file.write(line)
    (folder / f"{run.name}{_TRUTH}").write_text(json.dumps(played.truth, indent=1) + "\n")
    return trace


def lines(played: Played) -> Iterable[bytes]:
    """The lines of a recording."""
    for seen, body in zip(played.observations, played.bodies, strict=True):
        yield to_line(seen, body)


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """What stands in the tables: by whom, and of ours by scenario."""
    by_scenario: dict[str, list[score.Score]] = {}
    for result in results:
        by_scenario.setdefault(result[OURS].scenario, []).append(result[OURS])
    return {
        "whose": {name: score.summary([r[name] for r in results]) for name in results[0]},
        "scenarios": {name: score.summary(each) for name, each in sorted(by_scenario.items())},
    }
