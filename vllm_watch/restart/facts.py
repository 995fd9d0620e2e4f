"""The input of the guard (guard.py). None means unknown, which never permits a restart."""

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
    """Health of the target's group, counted in engines."""

    healthy: int  # without the target's engines
    total: int  # including the target's engines
    unknown: int = 0  # no recent scrape; counts as not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a hook, blocker or lock."""

    name: str
    allows: bool | None  # None if not answered
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about one target at one moment. Texts are reasons against a restart. An answer is None until it is asked for."""

    t: float  # Unix seconds
    state: str | None  # of the server's worst engine
    attempts: tuple[Attempt, ...] | None  # of the group, oldest first; None if unreadable
    busy: str | None = None  # id of the attempt under way
    breaker_reset_t: float = 0.0
    journal_refusal: str | None = None
    pause: Pause | None = None
    incident: Incident | None = None
    stale: str | None = "it was not scraped"
    replaced: str | None = None
    condition: str | None = None
    revoked: str | None = None
    silenced: bool = False
    startup_seconds: float | None = None
    start_failure: str | None = None
    peers: Peers | None = None
    version_first_t: float | None = None  # when this version of the watcher first ran
    hook: Answer | None = None
    blockers: tuple[Answer, ...] | None = None
    gang: tuple[Answer, ...] | None = ()  # answers of the other members
    lock: Answer | None = None
    asker: str | None = None  # gang member that restarts this target along with itself
