"""Which targets exchange KV, and what one of them should know of the other."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from vllm_watch.board.board import Board
from vllm_watch.incidents import relations
from vllm_watch.incidents.incident import Incident


class Peers:
    """Pairs of targets, as the configuration of either side names them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._of: Mapping[str, set[str]] = {}

    def follow(self, named: Mapping[str, Iterable[str]]) -> None:
        """From now on these are the pairs: target → those that it names."""
        pairs = [(name, peer) for name, peers in named.items() for peer in peers if peer in named]
        of: dict[str, set[str]] = defaultdict(set)
        for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
            of[one].add(other)
        self._of = of

    def beside(self, target: str) -> tuple[Incident, ...]:
        """What is open of its peers."""
        known = (self._board.targets.get(peer) for peer in sorted(self._of.get(target, ())))
        return tuple(each for entry in known if entry for each in entry.incidents.open.values())

    def waiting_for(self, target: str) -> tuple[str, ...]:
        """The peers that wait for KV which only this target can give: they have no other peer."""
        waiting = {
            each.target for each in self.beside(target) if relations.waits(each) and each.firing
        }
        return tuple(sorted(peer for peer in waiting if self._of[peer] == {target}))
