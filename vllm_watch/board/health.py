"""Health of sources, state folder, web configuration and notifiers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SourceHealth:
    """Results of the calls to one source since the watcher started."""

    outcome: str = ""
    last_call_timestamp_seconds: float | None = None
    last_success_timestamp_seconds: float | None = None
    duration_seconds: float | None = None
    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by outcome, except "ok"

    def count(self, outcome: str, duration_seconds: float, at: float) -> None:
        self.outcome = outcome
        self.last_call_timestamp_seconds = at
        self.duration_seconds = duration_seconds
        self.calls += 1
        if outcome == "ok":
            self.last_success_timestamp_seconds = at
        elif outcome != "no_driver":  # neither an error nor a success
            self.errors[outcome] = self.errors.get(outcome, 0) + 1


@dataclass(slots=True)
class StoreHealth:
    """Results of writes to the state folder since the watcher started."""

    folder: str
    ok: bool = True
    because: str | None = None
    last_success_timestamp_seconds: float | None = None
    errors: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str | None, because: str | None, t: float) -> None:
        """`reason` and `because` are None after a success."""
        self.ok, self.because = reason is None, because
        if reason is None:
            self.last_success_timestamp_seconds = t
        else:
            self.errors[reason] = self.errors.get(reason, 0) + 1

    def count_charts(self, reason: str | None, _because: str | None, _t: float) -> None:
        """Count damaged charts, but not failed writes."""
        if reason in ("damaged", "entry"):
            self.errors[reason] = self.errors.get(reason, 0) + 1


@dataclass(slots=True)
class WebHealth:
    """Health of the web configuration."""

    file: str
    problem: str | None = None
    remedy: str | None = None
    last_success_timestamp_seconds: float | None = None

    @property
    def because(self) -> str | None:
        if self.problem is None:
            return None
        return f"{self.problem}. {self.remedy}. The previous configuration stays in use"


SENT, FAILED, DROPPED = NOTIFIER_OUTCOMES = ("sent", "failed", "dropped")


@dataclass(slots=True)
class NotifierHealth:
    """Results of one notifier."""

    kind: str
    ok: bool | None = None  # None if not tried yet
    because: str | None = None
    queue: int = 0
    last_success_timestamp_seconds: float | None = None
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOTIFIER_OUTCOMES, 0))

    def count(self, outcome: str, count: int, queue: int, because: str | None, t: float) -> None:
        """An empty outcome updates only the queue length."""
        self.queue = queue
        if not outcome:
            return
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        if outcome == SENT:
            self.ok, self.because, self.last_success_timestamp_seconds = True, None, t
        elif outcome == FAILED:
            self.ok, self.because = False, because
