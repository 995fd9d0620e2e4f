"""Counts failed health checks, and the polls between them that show new tokens."""

from dataclasses import dataclass

from vllm_watch.detectors.base import View
from vllm_watch.samples.observation import Reading

_SERVER_ERROR = 500


@dataclass(slots=True)
class Health:
    """A series of failed health checks."""

    failed_s: float | None = None
    failed_looks: int = 0
    moving_looks: int = 0
    still_looks: int = 0  # failed checks since the last token
    moved_s: float = 0.0
    told_dead: bool = False
    in_hand: float = 0.0
    _tokens: float | None = None

    def look(self, view: View) -> None:
        health = view.observation.health
        failed = health is not None and (health.status or 0) >= _SERVER_ERROR
        if health is not None and not failed:
            self.failed_looks = self.moving_looks = self.still_looks = 0
            self._tokens, self.told_dead = None, False
        if not (failed or self.failed_looks):
            return
        if failed:
            self.failed_looks += 1
            self.still_looks += 1
            self.failed_s = view.at_s
        if view.observation.reading is not None:
            self._count(view.observation.reading, view.at_s)

    def _count(self, reading: Reading, at_s: float) -> None:
        engines = reading.engines
        counted = [each.generation_tokens for each in engines] + [
            each.prompt_tokens for each in engines
        ]
        before, self._tokens = self._tokens, sum(tokens or 0.0 for tokens in counted)
        self.in_hand = sum(
            (each.requests_running or 0.0) + (each.requests_waiting or 0.0) for each in engines
        )
        if before is not None and self._tokens > before:
            self.moving_looks, self.still_looks, self.moved_s = self.moving_looks + 1, 0, at_s

    def dead(self, at_s: float, looks: int, patience_s: float) -> bool:
        """Return True if `looks` checks have failed without a new token.

        If tokens arrived between earlier failed checks, unfinished requests must also have waited
        `patience_s` for the next token.
        """
        if self.still_looks < looks:
            return False
        served = self.moving_looks >= looks
        if served and (self.in_hand <= 0.0 or at_s - self.moved_s < patience_s):
            return False
        self.told_dead = True
        return True

    def serves(self, looks: int) -> bool:
        return self.moving_looks >= looks
