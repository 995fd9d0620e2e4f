"""The guard's input. None means unknown, which never permits."""

from dataclasses import dataclass

from vllm_watch.incidents.incident import Incident
from vllm_watch.state.attempt import Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's pause of all restarts."""

    actor: str
    reason: str
    until_t: float | None = None  # Unix seconds; None: until resumed


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Health of the target's group, in engines."""

    healthy: int
    total: int
    unknown: int = 0  # no recent scrape; not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of a hook, a blocker or a lock."""

    name: str
    allows: bool | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about one target at one moment."""

    t: float  # Unix seconds: now
    state: str | None  # worst of its engines
    attempts: tuple[Attempt, ...] | None  # of the group, a week back, oldest first; None: unread
    busy: str | None = None
    breaker_reset_t: float = 0.0
    journal_refusal: str | None = None
    pause: Pause | None = None
    incident: Incident | None = None
    stale: str | None = "it was not scraped"
    replaced: str | None = None
    condition: str | None = None
    revoked: str | None = None  # why the requester's token is invalid
    silenced: bool = False
    startup_seconds: float | None = None  # of this engine; None: never seen
    start_failure: str | None = None  # from the log or a crash loop
    peers: Peers | None = None
    version_first_t: float | None = None
    hook: Answer | None = None
    blockers: tuple[Answer, ...] | None = None
    gang: tuple[Answer, ...] | None = ()  # members restarted with it; None: not asked yet
    lock: Answer | None = None
    asker: str | None = None  # gang member that restarts this one too
