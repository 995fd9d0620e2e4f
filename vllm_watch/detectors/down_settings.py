"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Silence is counted in scrapes and in seconds since the last answered scrape."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A refused connection is certain for its moment: nothing listens. A second one excludes a proxy or Service that
    points nowhere for an instant. With other evidence (a failed health check, a lost GPU, a dead process) one suffices."""

    silent_looks: int = Field(3, ge=1)
    """Healthy servers miss one scrape in 200; three in a row by chance are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """At one scrape per second three pass soon: a large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """A server with a thousand connections was silent for 16 s and recovered."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """Until then a ticket: an API server that tokenizes a large prompt or writes megabytes of JSON is silent for
    seconds. After longer silences with recovery it pages at twice their length."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Upper bound of the time to a page: vLLM's clients have given up by then."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """A lost route returns within seconds when a switch or name server fails over; TCP resends its first packet after
    1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health returns 503 when the engine core is dead; the server usually exits within a second. This many failed
    checks in a row without a token mean a dead engine; this many with new tokens mean a live one."""

    page_after_seconds: float = Field(180.0, gt=0)
    """A server that went (almost) unused may have been restarted on purpose: most models load in one to three minutes.
    Longer if this one takes longer. A drained server is not reported until then."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that goes after this long without requests costs no users: it was scaled to zero, or moved at night. It
    never pages, unless it has outlived longer silences: an autoscaler would have taken it then. Autoscalers wait as
    long or longer after the last request (Knative 60 s, KEDA 300 s)."""

    away_factor: float = Field(2.0, ge=1)
    """A server that goes when unused and returns on demand is normal until it is away for twice its longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted after this time, and not before twice the longest silence it recovered from."""

    exit_seconds: float = Field(3.0, gt=0)
    """An API server exits within a second of its engine core's death. A process that outlives its closed port was told
    to stop and finishes its requests (seen: 40 s after SIGTERM)."""

    loop_starts: int = Field(3, ge=2)
    """This many processes in a row started without ever answering."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """If the lives before this many restarts add up to less, its start or its first requests crash it: one more restart
    does not help."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop is over when the server has lived this long."""
