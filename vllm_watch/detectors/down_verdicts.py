"""Builds the verdicts on a silent server."""

from vllm_watch.detectors import down_witnesses
from vllm_watch.detectors.base import FIRING, UNKNOWN, Evidence, Verdict
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.signals.loading import START_SECONDS
from vllm_watch.support.durations import in_words

KIND = "engine_down"

NEEDS = Needs(
    sharpens=(
        Need(("health",), "an engine core that dies is found only when its API server ends too"),
        Need(("running", "waiting"), "a crash under load resembles the end of an idle server, so it pages late"),
        Need(("finished",), "a server that was drained before it was stopped seems crashed"),
        Need(("prompted",), "a server that was emptied before it was stopped may look crashed"),
    ),
)  # fmt: skip


def unknown(summary: str) -> Verdict:
    """Return an unknown verdict."""
    return Verdict(state=UNKNOWN, kind=KIND, summary=summary)


def never_up(waited_s: float, said: str) -> Verdict:
    """Judge a server that has refused connections since the first poll."""
    if waited_s < START_SECONDS:
        why = "vLLM refuses connections until its weights are loaded"
        return unknown(f"refused for {in_words(waited_s)}; {why}")
    return Verdict(
        state=FIRING,
        kind=KIND,
        cause="unknown",
        severity="ticket",
        summary=f"never seen to answer, and it has refused for {waited_s / 60:.0f} min",
        evidence_for=(down_witnesses.seconds("seconds_refused", waited_s, START_SECONDS, said),),
    )


def up_in_a_loop(up_s: float) -> Verdict:
    """Judge a server in a crash loop that is up at this poll."""
    return Verdict(
        state=FIRING,
        kind=KIND,
        cause="crash_loop",
        severity="page",
        present=False,
        summary=f"up for {in_words(up_s)}, as it was before each crash",
    )


def alive_after_all(failed_looks: int) -> Verdict:
    """Judge a server that was reported dead but generates tokens."""
    return Verdict(
        state=FIRING,
        kind=KIND,
        cause="engine_dead",
        severity="page",
        present=False,
        summary=f"/health failed {failed_looks} times in a row, but tokens flowed",
    )


def health_failing(failed_looks: int) -> Verdict:
    """Judge a server that serves although /health fails."""
    evidence = down_witnesses.health_failed(failed_looks)
    text = "tokens were generated while /health failed"
    return Verdict(
        state=FIRING,
        kind=KIND,
        cause="health_failing",
        severity="ticket",
        summary=f"/health returns 503 while it serves: {evidence.text}",
        evidence_for=(evidence, Evidence(name="tokens_moved", value=1.0, expected=0.0, text=text)),
    )


def dead(looks: int, of_gpus: tuple[Evidence, ...], *, needs_hands: bool) -> Verdict:
    """Judge a server with a dead engine core. `needs_hands` is True if there is a GPU fault that no restart cures."""
    evidence = down_witnesses.health_failed(looks)
    return Verdict(
        state=FIRING,
        kind=KIND,
        cause="engine_dead",
        severity="page",
        restart_advised=not needs_hands,
        summary=f"the API server answers, but its engine core is dead: {evidence.text}",
        evidence_for=(evidence, *of_gpus),
    )
