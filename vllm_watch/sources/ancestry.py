"""Find out if the program that started a worker process is still alive."""

from vllm_watch.sources.processes import ProcessFacts, ProcReader

ANCESTORS_MAX = 12
"""At most this many ancestors are read. A long chain, from the engine's core to systemd, has seven."""

ARGUMENTS_MAX = 6
"""At most this many arguments of a command are read. The program is the fourth argument in `python -u -m vllm.entrypoints.openai.api_server`."""

DEAD_STATES = ("Z", "X")
"""A group leader in these states has ended, so it no longer supervises its children."""

_TITLES = ("vllm", "worker", "multiprocessing")

Kin = tuple[tuple[str, ...] | None, bool | None]  # the ancestors' commands, and True if orphaned


class Ancestry:
    """Finds the ancestors of a process. If one cannot be read, all are unknown."""

    def __init__(self, processes: ProcReader) -> None:
        self._processes = processes
        self._read: dict[int, ProcessFacts | None] = {}
        self._chains: dict[int, tuple[str, ...] | None] = {}

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(pid for pid, facts in self._read.items() if facts)

    def begin(self) -> None:
        self._read.clear()
        self._chains.clear()

    def of(self, facts: ProcessFacts) -> Kin:
        if not is_worker(facts) or not facts.ppid:
            return None, None
        if facts.ppid not in self._chains:
            self._chains[facts.ppid] = self._chain(facts.ppid)
        chain = self._chains[facts.ppid]
        if chain is None:
            return None, None
        return chain, self._left_behind(facts)

    def _chain(self, pid: int | None) -> tuple[str, ...] | None:
        commands: list[str] = []
        while pid and len(commands) < ANCESTORS_MAX:
            facts = self._facts(pid)
            if facts is None:
                return None
            commands.append(command(facts))
            pid = facts.ppid
        return tuple(commands)

    def _left_behind(self, facts: ProcessFacts) -> bool | None:
        parent = self._facts(facts.ppid or 0)
        for _ in range(ANCESTORS_MAX):
            if parent is None or not is_titled(parent):
                break
            facts, parent = parent, self._facts(parent.ppid or 0)
        if parent is None or not facts.pgid:  # 0: the group is in another namespace
            return None
        if facts.pgid in (facts.pid, parent.pgid):
            return False
        leader = self._facts(facts.pgid)
        return leader is None or leader.state in DEAD_STATES

    def _facts(self, pid: int) -> ProcessFacts | None:
        if pid not in self._read:
            self._read[pid] = self._processes.read(pid)
        return self._read[pid]


def is_worker(facts: ProcessFacts) -> bool:
    """Return True if this may be a worker."""
    text = f"{facts.name or ''} {' '.join((facts.cmdline or ())[:ARGUMENTS_MAX])}".lower()
    return any(title in text for title in _TITLES)


def is_titled(facts: ProcessFacts) -> bool:
    """Return True if vLLM set the process's title."""
    return (facts.cmdline or (facts.name or "",))[0].startswith("VLLM::")


def command(facts: ProcessFacts) -> str:
    """Return the command without its options, which may hold secrets."""
    words = []
    for word in (facts.cmdline or ())[:ARGUMENTS_MAX]:
        if word.startswith("--"):
            break
        words.append(word[:200])
    return " ".join(words) or facts.name or ""
