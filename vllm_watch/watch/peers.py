"""Facts about targets that exchange KV cache (peers) or step together (gangs)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from vllm_watch.board.board import Board
from vllm_watch.detectors.base import Around
from vllm_watch.incidents import relations
from vllm_watch.incidents.incident import Incident
from vllm_watch.samples.record import changed
from vllm_watch.settings.target import TargetConfig


class Peers:
    """The peers and gangs of all targets. Two targets are peers if the settings of either name the other."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._of: Mapping[str, set[str]] = {}
        self._gangs: Mapping[str, tuple[str, ...]] = {}

    def follow(self, targets: Iterable[TargetConfig]) -> None:
        known = {each.name: each for each in targets}
        pairs = [
            (name, peer) for name, each in known.items() for peer in each.peers if peer in known
        ]
        of: dict[str, set[str]] = defaultdict(set)
        for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
            of[one].add(other)
        self._of = of
        gangs: dict[str, list[str]] = defaultdict(list)
        for name, each in known.items():
            if each.gang:
                gangs[each.gang].append(name)
        self._gangs = {
            name: tuple(other for other in members if other != name)
            for members in gangs.values()
            for name in members
        }

    def beside(self, target: str) -> tuple[Incident, ...]:
        if target not in self._of and target not in self._gangs:
            return ()
        names = sorted(self._of.get(target, set()).union(self._gangs.get(target, ())))
        return tuple(each for name in names for each in self._open(name))

    def around(self, target: str, of_host: Around) -> Around:
        """Return `of_host`, the facts of the target's host, together with those of its peers and gang."""
        ranks = self._gangs.get(target, ())
        peers = sorted(self._of.get(target, ()))
        if not ranks and not peers:
            return of_host
        waiting = tuple(peer for peer in peers if any(map(_wants_kv, self._open(peer))))
        start_t = self._process_start_t(target)
        incidents = {rank: tuple(self._open(rank)) for rank in ranks}
        return changed(
            of_host,
            missed_by=waiting,
            # A target with several peers may wait for any of them. A wait that is older than the target's process was for the previous process.
            waited_for=tuple(
                peer
                for peer in waiting
                if self._of[peer] == {target} and self._waits_since_t(peer) > start_t
            ),
            peers=tuple(peers),
            ranks=ranks,
            stalled_ranks=tuple(r for r in ranks if any(map(_stalled, incidents[r]))),
            held_up_by=tuple(r for r in ranks if any(map(_failed_itself, incidents[r]))),
        )

    def _waits_since_t(self, target: str) -> float:
        return min(each.began_t for each in self._open(target) if _wants_kv(each))

    def _process_start_t(self, target: str) -> float:
        entry = self._board.targets.get(target)
        known = None if entry is None or entry.signals is None else entry.signals.process_start_time
        return 0.0 if known is None else known

    def _open(self, target: str) -> Iterable[Incident]:
        entry = self._board.targets.get(target)
        return () if entry is None else entry.incidents.open.values()


def _wants_kv(incident: Incident) -> bool:
    return relations.waits(incident) and incident.cause != "rank_wait" and incident.firing


def _stalled(incident: Incident) -> bool:
    return incident.kind == "engine_stalled" and incident.firing


def _failed_itself(incident: Incident) -> bool:
    own = incident.kind == "engine_stalled" and incident.cause in ("stopped", "idle_wedged")
    return (own or incident.kind == "engine_down") and incident.firing
