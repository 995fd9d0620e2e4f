"""Looks at a made-up server, and what one detector said of each."""

from vllm_watch.detectors import engine_down, engine_stalled
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import (
    Call,
    CanaryCall,
    Observation,
    ProcessState,
    Reading,
    ServerSample,
)
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


# a server that goes away, and what `engine_down` said of it

UP = [seen(s) for s in range(0, 60, 5)]


IDLE = [seen(s, engine(1000, running=0.0)) for s in range(0, 60, 5)]


def downs(observations):
    return judge(engine_down.Detector(engine_down.Settings()), observations)


def gone(outcome, start, end, **fields):
    return [silent(s, outcome, **fields) for s in range(start, end, 5)]


def inside(start, end):
    """Its core is dead: /health fails, and not a token moves."""
    return [
        seen(s, engine(2195 if start > 60 else 1550), health=DEAD) for s in range(start, end, 5)
    ]


def served(second, *, done, running=4.0, waiting=0.0, aborted=0, prompts=None, **fields):
    """A server that has finished `done` requests of a hundred prompt tokens each, or `prompts` of them."""
    one = engine(
        100 + 10 * second, running=running, waiting=waiting,
        request_success={"stop": done, "abort": aborted},
        prompt_tokens=100.0 * (done if prompts is None else prompts),
    )  # fmt: skip
    return seen(second, one, **fields)


def used(seconds=600, every=5, **fields):
    """Two requests a second."""
    return [served(s, done=2 * s, **fields) for s in range(0, seconds, every)]


def emptied(seconds, running=0.0, **fields):
    """... and then, for so long, none any more."""
    return [
        served(s, done=1200 + 4, prompts=1200, running=running, **fields)
        for s in range(600, 600 + seconds, 5)
    ]


def seldom(begin, idle_s):
    """Ten minutes of one request in half a minute, and then, for so long, none any more."""
    looks = [served(begin + s, done=s // 30) for s in range(0, 600, 5)]
    return [*looks, *(served(begin + 600 + s, done=20, running=0.0) for s in range(0, idle_s, 5))]


def process(start, *, alive=True, pid=7):
    return ProcessState(pid=pid, start_time=start, alive=alive)


OLD, NEW = T - 86400, T + 600


def spell(begin, absent):
    """Five minutes of work, five of nothing, and gone."""
    work = [
        served(s, done=2 * (s - begin), process_start_time=T + begin)
        for s in range(begin, begin + 300, 5)
    ]
    idle = [
        served(s, done=600, running=0.0, process_start_time=T + begin)
        for s in range(begin + 300, begin + 600, 5)
    ]
    return [*work, *idle, *gone("refused", begin + 600, begin + 600 + absent)]


# an engine that steps, or stands still, and what `engine_stalled` said of it

HEALTHY = [seen(s) for s in range(0, 60, 5)]  # 60 s at one look in 5 s, ever more steps


def stalls(observations):
    return judge(engine_stalled.Detector(engine_stalled.Settings()), observations)


def frozen(start, end, step=5, **fields):
    """The same counters from `start` to `end`."""
    server = {k: fields.pop(k) for k in ("gpus", "health") if k in fields}
    rise = fields.pop("fds_rise", 0.0)
    return [
        seen(s, engine(1600, **fields), fds=50.0 + rise * (s - start), **server)
        for s in range(start, end, step)
    ]


def busy(start, end, rate):
    """At work, with `rate` requests finished a second; what is between two looks may leave none running."""
    return [
        seen(s, engine(1000 + 10 * s, request_success={"stop": rate * s}))
        for s in range(start, end, 5)
    ]
