"""The guard's input. None means unknown, which never permits a restart."""

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

    healthy: int  # without the target, which is about to be restarted
    total: int  # with the target
    unknown: int = 0  # no recent scrape; counted as not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a hook, a blocker or a lock."""

    name: str
    allows: bool | None  # None: no answer
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about one target at one moment."""

    t: float  # Unix seconds: now
    state: str | None  # the worst state of the server's engines; None: unknown
    attempts: tuple[Attempt, ...] | None  # of the group, a week back, oldest first; None: unread
    busy: str | None = None  # id of the target's attempt that this watcher runs or verifies
    breaker_reset_t: float = 0.0  # when a person last resumed
    journal_refusal: str | None = None  # why the journal is unreliable
    pause: Pause | None = None
    incident: Incident | None = None  # behind the request, as on the board
    stale: str | None = "it was not scraped"  # why the last scrape is not current
    replaced: str | None = None  # why the process is not the requested one
    condition: str | None = None  # why its schedule's conditions fail
    revoked: str | None = None  # why the requester's token is not valid (any more)
    silenced: bool = False  # by a person
    startup_seconds: float | None = None  # of this engine; None: never seen
    start_failure: str | None = None  # why no start can succeed, from the log or a crash loop
    peers: Peers | None = None
    version_first_t: float | None = None  # when this version of the watcher first ran here
    hook: Answer | None = None  # None: not asked yet
    blockers: tuple[Answer, ...] | None = None  # None: not asked yet
    gang: tuple[Answer, ...] | None = ()  # members restarted with it; None: not asked yet
    lock: Answer | None = None  # None: not asked yet
    asker: str | None = None  # gang member that restarts this one too; None: itself
