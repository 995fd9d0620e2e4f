"""What a Prometheus would have stored of the lab's engines under faults: played in virtual time, written as real blocks."""

import subprocess
import time
from contextlib import contextmanager
from random import Random

from tests.dashboards.prometheus import Prometheus
from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.stories import L40S, load
from vllm_watch.lab.vllm import SimulatedVllm

FAULT_T, FAULT_SECONDS, WHOLE_SECONDS = 2400.0, 600.0, 3900.0
# The server, and what happens to it for ten minutes after forty.
FAULTY = {"sick-0:8000": "hang", "sick-1:8000": "slow", "sick-2:8000": "crash", "fine:8000": None}


def _script(scene):
    yield FAULT_T
    for name, fault in FAULTY.items():
        if fault:
            FAULTS[fault].begin(scene[name])
    yield FAULT_SECONDS
    for name, fault in FAULTY.items():
        if fault:
            FAULTS[fault].end(scene[name])
    yield WHOLE_SECONDS


def _lines(vllm, given, rename):
    """What one scrape of it stores: name and labels → value; None where it failed."""
    if not vllm.serving or vllm.api_hung:
        return None
    stored = []
    for line in Writer(vllm).body().splitlines():
        head, _, value = line.rpartition(" ")
        if not line.startswith("#") and "_bucket" not in head:
            name, _, labels = head.partition("{")
            labels = ",".join(filter(None, [labels.rstrip("}"), given]))
            stored.append((f"{rename(name)}{{{labels}}}", value))
    return stored


def write_blocks(folder, interval_s, alerts=(), rename=str):
    """Write what a scrape every `interval_s` stores into TSDB blocks; return (epoch, end), Unix seconds.

    `alerts`: (name, instance, begin, end), seconds of the play.
    """
    servers = [
        SimulatedVllm(name, workload=load(Random(number + 7), 2.0), config=L40S)
        for number, name in enumerate(FAULTY)
    ]
    scene = Scene(servers, None, _script)
    epoch = float(int(time.time()) - 4 * 3600)
    scene.begin_at(epoch)
    text = folder / "stored.om"
    with text.open("w") as file:
        for look in range(int(WHOLE_SECONDS / interval_s)):
            for number, server in enumerate(servers):
                at_s = look * interval_s + number * 2.5
                scene.play(at_s)
                server.advance(at_s)
                given = f'instance="{server.name}",job="vllm"'
                stored = _lines(server, given, rename)
                t = epoch + at_s
                for head, value in stored or ():
                    file.write(f"{head} {value} {t:.3f}\n")
                file.write(f"up{{{given}}} {int(stored is not None)} {t:.3f}\n")
                took_s = 0.004 if stored is not None or not server.api_hung else 10.0
                file.write(f"scrape_duration_seconds{{{given}}} {took_s} {t:.3f}\n")
            for name, instance, begin_s, end_s in alerts:
                if begin_s <= look * interval_s <= end_s:
                    file.write(f'ALERTS{{alertname="{name}",alertstate="firing",instance="{instance}"}} 1 {epoch + look * interval_s:.3f}\n')  # fmt: skip
        file.write("# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")],
        check=True, capture_output=True, timeout=600,
    )  # fmt: skip
    return epoch, epoch + WHOLE_SECONDS


@contextmanager
def prometheus(folder, targets=(), interval_s=15):
    """A real one over the blocks in `folder`, which scrapes `targets`; yields its URL."""
    with Prometheus(folder, *targets, job="vllm", interval_s=interval_s) as running:
        yield running.url
