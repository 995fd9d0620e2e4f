"""Looks at a made-up server, and what one detector said of each."""

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Call, CanaryCall, Observation, Reading, ServerSample
from vllm_watch.watch.watch import Watch

OK = Call(outcome="ok", status=200, latency_s=0.01)
DEAD = Call(outcome="http", status=503, error="HTTP 503", latency_s=0.01)
T = 1_700_000_000.0


def engine(steps=1000, *, name="0", running=4.0, waiting=0.0, kv=0.3, counted=True, **fields):
    """One engine that has taken so many steps, each of which made a token for each request."""
    return EngineSample(
        engine=name,
        requests_running=running,
        requests_waiting=waiting,
        kv_cache_usage=kv,
        generation_tokens=steps * 4.0,
        iteration_tokens=Histogram(float(steps), steps * 4.0) if counted else None,
        **fields,
    )


def seen(second, *engines, fds=50.0, health=OK, gpus=None, canary=None, latency_s=0.01, **server):
    """A look that had an answer. The process is a day old unless `process_start_time` says otherwise."""
    server.setdefault("process_start_time", T - 86400)
    reading = Reading(
        vllm=True, engine_kind="V1", engines=engines or (engine(1000 + 10 * int(second)),),
        server=ServerSample(process_open_fds=fds, **server),
    )  # fmt: skip
    scrape = Call(outcome="ok", status=200, latency_s=latency_s)
    return Observation(
        t=T + second, target="x", scrape=scrape, health=health, reading=reading, gpus=gpus,
        canary=canary,
    )  # fmt: skip


def silent(second, outcome="refused", *, health=None, status=None, process=None, gpus=None):
    call = Call(outcome=outcome, status=status, error=f"said {outcome}")
    return Observation(
        t=T + second, target="x", scrape=call, health=health, process=process, gpus=gpus
    )


def gpu(uuid="a", **fields):
    return GpuSample(index=0, uuid=uuid, **fields)


def unanswered(latency_s=10.0):
    return CanaryCall(ok=False, latency_s=latency_s, error="timeout")


class Heard:
    """A detector that remembers what another said."""

    def __init__(self, detector):
        self.detector = detector
        self.said = []

    def update(self, view):
        verdicts = self.detector.update(view)
        self.said.append((view.observation.t - T, verdicts))
        return verdicts


def judge(detector, observations):
    """[(second, verdicts)] of one detector over all looks."""
    heard = Heard(detector)
    watch = Watch("x", detectors={"it": heard})
    for observation in observations:
        watch.observe(observation)
    assert watch.failures == {}
    return heard.said


def first_firing(said, engine=None):
    """(second, verdict) of the first finding; None where there was none."""
    for second, verdicts in said:
        for verdict in verdicts:
            if verdict.state == "firing" and verdict.engine == engine:
                return second, verdict
    return None


def last(said, engine=None):
    return next(verdict for verdict in said[-1][1] if verdict.engine == engine)
