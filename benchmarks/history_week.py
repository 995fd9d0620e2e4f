"""What `vllm-watch replay --prometheus` costs: a week of 20 engines scraped every 15 s, asked for over Prometheus' API.

One engine of the lab is played, with a hang, slow steps and a crash of ten minutes each day, and served as many. The
command is a process of its own, whose CPU time and memory are told; what stands in for Prometheus counts for nothing.
Exit status 1: over ten minutes of CPU time, or over 500 MB.
"""

import argparse
import re
import resource
import subprocess
import sys
import threading
import time
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import parse_qs

from vllm_watch.lab.exposition import Writer
from vllm_watch.lab.faults import FAULTS
from vllm_watch.lab.stories import L40S, load
from vllm_watch.lab.vllm import SimulatedVllm

INTERVAL_SECONDS = 15.0
DAY_SECONDS = 86400.0
FAULT_SECONDS = 600.0
FAULTS_AT_SECONDS = {"hang": 3600.0, "crash": 2 * 3600.0, "slow": 12 * 3600.0}  # of each day
SECONDS_MAX, BYTES_MAX = 600.0, 500e6

_ASKED = re.compile(r'\{__name__=~"([^"]*)",.*instance="engine-(\d+):8000".*\}\[(\d+)s\]')


@dataclass(slots=True)
class Series:
    """One series of the engine: its name, its labels as JSON, and its samples by seconds of the play."""

    name: str
    labels: str
    times: "array[float]" = field(default_factory=lambda: array("d"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def samples(self, since_s: float, until_s: float, epoch: float) -> str:
        """Those in (since, until], as Prometheus writes them."""
        first, end = bisect_right(self.times, since_s), bisect_right(self.times, until_s)
        return ",".join(
            f'[{epoch + self.times[at]:.3f},"{self.values[at]:.17g}"]' for at in range(first, end)
        )


class Stored:
    """What a scrape each `INTERVAL_SECONDS` stored of one engine, shown as `engines` of them."""

    def __init__(self, seconds: float, engines: int) -> None:
        self.epoch = float(int(time.time() - seconds))  # Unix time of the play's beginning
        self.engines = engines
        self.scrapes = int(seconds / INTERVAL_SECONDS)
        self._series: dict[str, Series] = {}
        vllm = SimulatedVllm("engine", workload=load(Random(7), 2.0), config=L40S)
        vllm.epoch = self.epoch
        for number in range(self.scrapes):
            at_s = number * INTERVAL_SECONDS
            vllm.advance(at_s)
            for fault, begin_s in FAULTS_AT_SECONDS.items():
                if at_s % DAY_SECONDS == begin_s:
                    FAULTS[fault].begin(vllm)
                elif at_s % DAY_SECONDS == begin_s + FAULT_SECONDS:
                    FAULTS[fault].end(vllm)
            self._scrape(vllm, at_s)

    def _scrape(self, vllm: SimulatedVllm, at_s: float) -> None:
        self._add("up", float(vllm.serving), at_s)
        self._add("scrape_duration_seconds", 0.004, at_s)
        for line in Writer(vllm).body().splitlines() if vllm.serving else ():
            head, _, value = line.rpartition(" ")
            if not line.startswith("#") and "_bucket" not in head:
                self._add(head, float(value), at_s)

    def _add(self, head: str, value: float, at_s: float) -> None:
        series = self._series.get(head)
        if series is None:
            name, _, given = head.partition("{")
            labels = re.findall(r'(\w+)="([^"]*)"', given)
            series = self._series[head] = Series(
                name, "".join(f',"{label}":"{said}"' for label, said in labels)
            )
        series.times.append(at_s)
        series.values.append(value)

    def targets(self) -> str:
        """The answer to /api/v1/series."""
        names = (f'{{"__name__":"vllm:num_requests_running",{_given(n)}}}' for n in range(self.engines))  # fmt: skip
        return f"[{','.join(names)}]"

    def answer(self, query: str, until_t: float) -> str:
        """The answer to a range selector at a time; each engine is scraped at moments of its own."""
        asked, found = _ASKED.fullmatch(query), []
        if asked is not None:  # else it asks for alerts, of which there are none
            wanted, number = re.compile(asked[1]), int(asked[2])
            epoch = self.epoch + 0.7 * number
            until_s = until_t - epoch
            for each in self._series.values():
                if wanted.fullmatch(each.name):
                    samples = each.samples(until_s - float(asked[3]), until_s, epoch)
                    if samples:
                        found.append(f'{{"metric":{{"__name__":"{each.name}"{each.labels},{_given(number)}}},"values":[{samples}]}}')  # fmt: skip
        return f'{{"resultType":"matrix","result":[{",".join(found)}]}}'


def _given(number: int) -> str:
    return f'"instance":"engine-{number}:8000","job":"vllm"'


def served(stored: Stored) -> ThreadingHTTPServer:
    """A server of Prometheus' API over it, on loopback."""

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path.endswith("/series"):
                data = stored.targets()
            else:
                data = stored.answer(said["query"][0], float(said["time"][0]))
            body = f'{{"status":"success","data":{data}}}'.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--engines", type=int, default=20)
    arguments = parser.parse_args()
    seconds = arguments.days * DAY_SECONDS
    stored = Stored(seconds, arguments.engines)
    server = served(stored)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "replay", "--prometheus", f"http://127.0.0.1:{server.server_port}",
         "--since", str(stored.epoch - 1), "--until", str(stored.epoch + seconds + 60)],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    wall_s = time.monotonic() - began
    server.shutdown()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s, most = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    scrapes = stored.scrapes * stored.engines
    print(done.stdout.splitlines()[0])
    print(f"{scrapes} scrapes judged in {cpu_s:.0f} s of CPU time ({used.ru_utime:.0f} s user), {1000 * cpu_s / scrapes:.2f} ms each; {wall_s:.0f} s by the clock; {most / 1e6:.0f} MB at most")  # fmt: skip
    return int(cpu_s > SECONDS_MAX or most > BYTES_MAX)


if __name__ == "__main__":
    sys.exit(main())
