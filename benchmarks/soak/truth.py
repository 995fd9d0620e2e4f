"""What is really wrong with each engine, as only the lab knows it: what a watcher is measured by."""

from dataclasses import dataclass

AFTER_SECONDS = 300.0
"""After the end of a trouble a page may still be about it: caches are cold, queues are long, and an
incident that was open may be found again. As in docs/detection.md."""

LATE_SECONDS = 60.0
"""... and a restart that was decided during it: draining takes up to a minute, the guard asks again after."""


@dataclass(slots=True)
class Trouble:
    """One thing that is wrong with one target, on the soak's clock."""

    slug: str
    target: str
    begin_t: float
    pages: bool  # may it wake somebody?
    restarts: bool  # may a restart be advised and made?
    within_s: float | None = None  # so much of it seen, and a page must be open; None: it need not
    noted_s: float | None = None  # ... and a ticket at least, earlier
    end_t: float | None = None
    seen_s: float = 0.0
    found: bool = False

    def holds(self, t: float, after_s: float = 0.0) -> bool:
        """Is it, or was it until so long ago?"""
        return self.begin_t <= t and (self.end_t is None or t <= self.end_t + after_s)


class Truth:
    """All that was ever wrong."""

    def __init__(self) -> None:
        self.troubles: list[Trouble] = []

    def begin(
        self, slug: str, target: str, t: float, *, pages: bool = True, restarts: bool = True,
        within_s: float | None = None, noted_s: float | None = None,
    ) -> Trouble:  # fmt: skip
        """Something goes wrong now."""
        trouble = Trouble(slug, target, t, pages, restarts, within_s, noted_s)
        self.troubles.append(trouble)
        return trouble

    def open(self, target: str) -> list[Trouble]:
        """What is wrong with a target now."""
        return [each for each in self.troubles if each.target == target and each.end_t is None]

    def may_page(self, target: str, t: float) -> bool:
        """Is there anything to wake somebody for?"""
        return any(
            each.pages and each.target == target and each.holds(t, AFTER_SECONDS)
            for each in self.troubles
        )

    def may_restart(self, target: str, t: float) -> bool:
        """Is there anything that a restart could cure?"""
        return any(
            each.restarts and each.target == target and each.holds(t, LATE_SECONDS)
            for each in self.troubles
        )
