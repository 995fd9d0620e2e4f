"""Looks at an engine that steps, or stands still, and what `engine_stalled` said of them."""

from tests.detectors.looks import engine, judge, seen
from vllm_watch.detectors.engine_stalled import Detector, Settings

HEALTHY = [seen(s) for s in range(0, 60, 5)]  # 60 s at one look in 5 s, ever more steps


def stalls(observations):
    return judge(Detector(Settings()), observations)


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
