"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Silence counts in scrapes and in seconds since the last answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A refusal is certain for its moment: nothing listens. A second one excludes a proxy or Service that points
    nowhere for an instant. With other evidence (a failed health check, a lost GPU, a dead process) one suffices."""

    silent_looks: int = Field(3, ge=1)
    """Healthy servers miss one scrape in 200; three in a row are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """Three scrapes may take three seconds: a large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """A server with a thousand connections was silent for 16 s and recovered."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A warning until then: tokenizing a large prompt or writing megabytes of JSON takes seconds. It pages at twice the
    longest silence with recovery."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Page by then at the latest: clients have given up."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """Failover of a switch or name server takes seconds; TCP resends its first packet after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health returns 503 when the engine core is dead; the server usually exits within a second. This many failures in
    a row without a token mean a dead engine, with new tokens a live one."""

    page_after_seconds: float = Field(180.0, gt=0)
    """A server that went (almost) unused may have been restarted on purpose: most models load in one to three minutes.
    Longer if this one takes longer. A drained server is not reported until then."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that goes after this long without requests costs no users: it was scaled to zero, or moved at night. It
    never pages, unless it has outlived longer silences: an autoscaler would have taken it then. Autoscalers wait as
    long or longer (Knative 60 s, KEDA 300 s)."""

    away_factor: float = Field(2.0, ge=1)
    """A server that goes when unused and returns on demand is normal up to twice its longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted after this time, and after twice the longest silence it recovered from."""

    exit_seconds: float = Field(3.0, gt=0)
    """An API server exits within a second of its engine core's death. One that outlives its closed port was told to
    stop and finishes its requests (seen: 40 s after SIGTERM)."""

    loop_starts: int = Field(3, ge=2)
    """This many processes in a row never answered."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """If the lives before these restarts add up to less, its start or first requests crash it: a restart does not
    help."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when the server has lived this long."""
