"""How the parts of the watcher itself do: sources, state folder, web configuration, notifiers."""

from dataclasses import dataclass, field

# A machine without a driver answered, so it is no error; but no reading came, so no success either.
_NEITHER = frozenset({"no_driver"})


@dataclass(slots=True)
class SourceHealth:
    """How the calls to one source went, since the watcher began to call it."""

    outcome: str = ""  # of the last call
    last_call_timestamp_seconds: float | None = None
    last_success_timestamp_seconds: float | None = None
    duration_seconds: float | None = None  # of the last call
    calls: int = 0
    errors: dict[str, int] = field(default_factory=dict)  # by outcome other than "ok"

    def count(self, outcome: str, duration_seconds: float, at: float) -> None:
        """Add one finished call."""
        self.outcome = outcome
        self.last_call_timestamp_seconds = at
        self.duration_seconds = duration_seconds
        self.calls += 1
        if outcome == "ok":
            self.last_success_timestamp_seconds = at
        elif outcome not in _NEITHER:
            self.errors[outcome] = self.errors.get(outcome, 0) + 1


@dataclass(slots=True)
class StoreHealth:
    """The state folder since the watcher began."""

    folder: str
    ok: bool = True  # could the last attempt be written?
    because: str | None = None  # in words, why not
    last_success_timestamp_seconds: float | None = None
    errors: dict[str, int] = field(default_factory=dict)  # by reason

    def count(self, reason: str | None, because: str | None, t: float) -> None:
        """Take one attempt in: `reason` and `because` are None where it succeeded."""
        self.ok, self.because = reason is None, because
        if reason is None:
            self.last_success_timestamp_seconds = t
        else:
            self.errors[reason] = self.errors.get(reason, 0) + 1

    def count_charts(self, reason: str | None, _because: str | None, _t: float) -> None:
        """The charts' own file: what is lost is counted; what stands in the way is told by the state file, too."""
        if reason in ("damaged", "entry"):
            self.errors[reason] = self.errors.get(reason, 0) + 1


@dataclass(slots=True)
class WebHealth:
    """The web configuration since the watcher began."""

    file: str
    problem: str | None = None  # why the file as it is now is not used, in words
    remedy: str | None = None
    last_success_timestamp_seconds: float | None = None

    @property
    def because(self) -> str | None:
        """Why an older one is used, and what to do; None: the file's own is used."""
        if self.problem is None:
            return None
        return f"{self.problem}. {self.remedy}. The one before goes on"


NOTIFIER_OUTCOMES = ("sent", "failed", "dropped")


@dataclass(slots=True)
class NotifierHealth:
    """One notifier since the watcher began."""

    kind: str
    ok: bool | None = None  # of the last try; None: there was none yet
    because: str | None = None  # in words, why it fails now
    queue: int = 0  # notifications that wait to be sent
    last_success_timestamp_seconds: float | None = None
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOTIFIER_OUTCOMES, 0))

    def count(self, outcome: str, count: int, queue: int, because: str | None, t: float) -> None:
        """Take news in; an empty outcome says only how many wait."""
        self.queue = queue
        if not outcome:
            return
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        if outcome == "sent":
            self.ok, self.because, self.last_success_timestamp_seconds = True, None, t
        elif outcome == "failed":
            self.ok, self.because = False, because
