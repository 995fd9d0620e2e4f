"""Detects an engine that answers `/health` but fails requests: errors, HTTP 5xx, or unusable
answers.

Failures by clients (4xx, disconnects) and intended refusals (503 of --max-num-queued-reqs) are not
counted. Source: a real pair of vLLM 0.32 with its prefill server killed; vLLM #46811.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from vllm_watch.detectors import request_ends
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.gpu_fault import GpuTrouble
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.detectors.request_ends import Answers, Ends, Failures, Finding
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import StartFailure
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import stored
from vllm_watch.story.engine_failing import STORY

KIND = "engine_failing"

NEEDS = Needs(
    must=(Need(("finished",), "how requests end is not known"),),
    sharpens=(
        Need(("http",), "requests that fail in the API server, before an engine sees them, are not found"),
        Need(("lengths",), "answers that are cut off or never end are not found"),
    ),
)  # fmt: skip

STATE_VERSION = 1

_CUDA = "xid_or_gpu_lost"
_KV = "kv_transfer"
"""Failure classes that `vllm-watch diagnose` finds in an engine's log."""


class Settings(Base):
    """How many requests must fail, and for how long."""

    most_ratio: float = Field(0.5, gt=0, le=1)
    """An engine pages if this share of its requests fails for most_seconds."""

    most_seconds: float = Field(15.0, gt=0)
    """A page needs failures of at least most_ratio of the requests for this many seconds. If a peer
    or worker restarts, only the requests in flight fail."""

    some_ratio: float = Field(0.1, gt=0, le=1)
    """An engine pages if this share of its requests fails for some_seconds. If one in ten fails,
    even a retry may fail."""

    some_seconds: float = Field(60.0, gt=0)
    """If less than most_ratio of the requests fails, a finding needs failures for this many
    seconds. A passing fault ends sooner."""

    few_ratio: float = Field(0.02, gt=0, le=1)
    """A warning needs this share of failed requests."""

    failures_min: int = Field(3, ge=1)
    """A finding needs this many failed requests. Fewer may be retries of one odd request."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart is advised after this many seconds of CUDA errors. The error usually kills the
    process sooner."""


class Detector:
    """Detects failing requests of each engine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._followed: dict[str | None, Failures] = {}
        self._answers: dict[str, Answers] = {}
        self._gpus = GpuTrouble()

    def export_state(self, at_s: float) -> dict[str, Any]:
        answers = {name: each.export_state() for name, each in self._answers.items()}
        return {"version": STATE_VERSION, "answers": answers}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        stored.version(state, STATE_VERSION)
        answers, read = stored.mapping(state["answers"]).items(), stored.part(Answers)
        self._answers = {stored.text(name): read(each) for name, each in answers}

    def update(self, view: View) -> Sequence[Verdict]:
        self._gpus.look(view)
        reading = view.observation.reading
        if reading is None or not view.known:
            self._followed = {} if not view.known else self._followed
            return [Verdict(state=UNKNOWN, kind=KIND, engine=name) for name in self._followed]
        samples = [each for each in reading.engines if each.engine in view.signals.engines]
        alone = len(samples) == 1
        ends: dict[str | None, tuple[EngineSample | None, Ends]] = {
            each.engine: (each, request_ends.of_engine(each, alone=alone)) for each in samples
        }
        if len(samples) > 1:
            ends[None] = None, request_ends.of_server(samples)
        self._followed = {name: self._followed.get(name) or Failures() for name in ends}
        if samples:
            self._answers = {name: each for name, each in self._answers.items() if name in ends}
        return [self._judge(view, name, *told) for name, told in ends.items()]

    def _judge(self, view: View, name: str | None, sample: EngineSample | None, ends: Ends) -> Verdict:  # fmt: skip
        followed, engines = self._followed[name], view.signals.engines
        mine = [*engines.values()] if name is None else [engines[name]]
        asleep = {each.state for each in mine} == {"sleeping"}
        followed.look(view.at_s, ends, sample, sum([each.restarts for each in mine]), asleep=asleep)
        quiet = asleep or followed.quiet(view.at_s)
        severity = None if quiet else self._severity(followed)
        if severity is not None:
            return self._firing(view, name, followed, severity)
        found = None if sample is None else self._of_answers(view, sample, followed)
        lasted_s = 0.0 if found is None else view.at_s - found.since_s
        if found is not None and lasted_s >= self._settings.most_seconds:
            return _unusable(f"Engine {name}", sample, found, lasted_s)
        state = CLEAR if quiet and found is None else UNKNOWN
        return Verdict(state=state, kind=KIND, engine=name)

    def _of_answers(self, view: View, sample: EngineSample, followed: Failures) -> Finding | None:
        answers = self._answers.get(sample.engine)
        if answers is None or answers.model != sample.model_name:
            answers = self._answers[sample.engine] = Answers(sample.model_name)
        return answers.look(view.at_s, followed.newest, followed.window, followed.window_s)

    def _severity(self, followed: Failures) -> str | None:
        settings, lasted_s, share = self._settings, followed.lasted_s, followed.share()
        if followed.window.failed + followed.window.doubtful < settings.failures_min:
            return None
        if share >= settings.most_ratio and lasted_s >= settings.most_seconds:
            return "page"
        if lasted_s < settings.some_seconds:
            return None
        if share >= settings.some_ratio:
            return "page"
        odd = followed.share(doubtful=True) >= settings.most_ratio
        return "ticket" if odd or share >= settings.few_ratio else None

    def _firing(self, view: View, name: str | None, followed: Failures, severity: str) -> Verdict:
        cause = self._cause(followed, view.observation.start_failure)
        lasted_s = view.at_s - (followed.began_s or view.at_s)
        helps = cause == "cuda_error" and not self._gpus.needs_hands
        seen = f"; {STORY.causes[cause].seen}" if cause in STORY.causes else ""
        who = "The API server" if name is None else f"Engine {name}"
        return Verdict(
            state=FIRING,
            kind=KIND,
            engine=name,
            cause=cause,
            severity=severity,
            restart_advised=helps and severity == "page" and lasted_s >= self._settings.advise_seconds,
            summary=f"{who}: {followed.text}{seen}",
            since_seconds=lasted_s,
            measure=followed.share(),
            present=followed.present(view.at_s),
            evidence_for=(*_evidence(followed), *self._gpus.evidence),
        )  # fmt: skip

    def _cause(self, followed: Failures, log: StartFailure | None) -> str:
        """Ignore Xid errors, which may concern another engine's GPU."""
        said = None if log is None else log.failure
        if said == _CUDA:
            return "cuda_error"
        return "kv_transfer" if followed.kv_failed or said == _KV else "unknown"


def _unusable(who: str, sample: EngineSample | None, found: Finding, lasted_s: float) -> Verdict:
    seen = f"{STORY.causes[found.cause].seen}: {found.count:.0f} of the last {found.of:.0f}"
    return Verdict(
        state=FIRING,
        kind=KIND,
        engine=None if sample is None else sample.engine,
        cause=found.cause,
        severity=found.severity,
        summary=f"{who}: {seen}",
        since_seconds=lasted_s,
        measure=found.count / found.of,
        present=found.present,
        evidence_for=(
            Evidence(
                name="answers_ratio", value=round(found.count / found.of, 3), unit="ratio",
                expected=round(found.usual, 3), text=f"{seen}; usually {found.usual:.0%}",
            ),
        ),
    )  # fmt: skip


def _evidence(followed: Failures) -> tuple[Evidence, ...]:
    share = Evidence(
        name="failed_ratio", value=round(followed.share(), 3), unit="ratio", expected=0.0, text=followed.text
    )  # fmt: skip
    if not followed.kv_failed:
        return (share,)
    said = ", ".join(f"{name} {count:.0f}" for name, count in followed.kv_failed.items())
    total = sum(followed.kv_failed.values())
    return share, Evidence(
        name="kv_failures", value=total, expected=0.0, text=f"since it began: {said}"
    )
