"""A host with GPUs and the servers on it, judged as the daemon does: the GPUs once, each server by its own looks."""

from dataclasses import replace

from tests.detectors.looks import T, engine, seen, silent
from tests.signals.holders import series
from tests.told import said
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.watch import Watch

STEP = 5


def core(pid, parent, *, started=T - 86_300.0):
    """The engine core of a server, at work; `started` by the process `parent`."""
    return series.core(pid, ppid=parent, gib=30, create_time=started, sm_utilization_ratio=0.5)


def notebook(pid=900):
    """A kernel that does nothing, for hours."""
    return series.kernel(pid, gib=30, create_time=T - 86_300.0)


def gpu(index, *processes, **fields):
    return series.gpu(*processes, index=index, **fields)


class Hosted:
    """Servers by name, each with its PIDs (none: not seen), all at work until told otherwise."""

    def __init__(self, gpus, **pids):
        self.gpus = gpus  # as at each look
        self.pids = pids
        self.host = HostWatch("h")
        self.watches = {name: Watch(name) for name in pids}
        self.down = {}  # name → how its looks end
        self.hung = {}  # name → the second at which its engine stood still
        self.second = 0
        self.told = []

    def servers(self):
        return {
            name: ServerScrape.of(watch.signals, watch.incidents, frozenset(self.pids[name]))
            for name, watch in self.watches.items()
        }

    def until(self, second):
        """Look every five seconds, first at the servers, then at the GPUs; return what was told meanwhile."""
        told = []
        while self.second <= second:
            for name, watch in self.watches.items():
                beside = self.host.concerning(name)
                around = self.host.around(name)
                told += said(watch.observe(self._look(name), beside=beside, around=around))
            told += said(self.host.look(T + self.second, None, self.gpus, self.servers()))
            self.second += STEP
        assert self.host.failures == {}
        self.told += told
        return told

    def _look(self, name):
        if name in self.down:
            look = silent(self.second, self.down[name])
        else:
            working_s = min(self.second, self.hung.get(name, self.second))
            look = seen(self.second, engine(1000 + 10 * working_s), process_start_time=T - 86_400)
        return replace(look, target=name, gpus=self.gpus)

    def open(self, target):
        """What is open of a server, or of the host: kind → incident."""
        watch = self.host if target == "host:h" else self.watches[target]
        return {each.kind: each for each in watch.incidents}


def opened(told):
    return [(e["target"], e["kind"], e["severity"]) for e in told if e["event"] == "opened"]


def pages(told):
    return [
        (e["target"], e["kind"])
        for e in told
        if e["event"] != "resolved" and e["severity"] == "page"
    ]
