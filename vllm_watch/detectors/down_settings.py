"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Silences are counted in scrapes and in seconds since the last answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A refusal proves that nothing listens at that moment. A second one excludes a proxy or Service that points nowhere for
    an instant. With other evidence (a failed health check, a lost GPU, a dead process) one suffices."""

    silent_looks: int = Field(3, ge=1)
    """Healthy servers miss one scrape in 200; three in a row are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """Three scrapes take three seconds or less, but a large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """Replaces silent_seconds for busy servers: one with a thousand connections recovered after 16 s of silence."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A shorter silence is a warning: tokenizing a large prompt or writing megabytes of JSON takes seconds. A server that
    recovered from longer silences pages at twice the longest."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Upper bound of the time before a page: by then clients have given up."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """Failover of a switch or name server takes seconds; TCP resends its first packet after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health returns 503 when the engine core is dead, and the server usually exits within a second. This many failures in
    a row mean a dead engine, unless new tokens show that it lives."""

    page_after_seconds: float = Field(180.0, gt=0)
    """A server that ended while (almost) unused may have been restarted on purpose: most models load in one to three minutes.
    A server that loads longer gets more time. A drained server is not reported before this time."""

    idle_seconds: float = Field(60.0, gt=0)
    """The end of a server after this long without requests harms no users: it was scaled to zero, or moved at night. It never
    pages, unless the server has outlived longer silences, after which an autoscaler would have stopped it. Autoscalers wait
    as long or longer (Knative 60 s, KEDA 300 s)."""

    away_factor: float = Field(2.0, ge=1)
    """A server that ends when unused and returns on demand may be away for this many times its longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted after this time, or after twice the longest silence that it recovered from."""

    exit_seconds: float = Field(3.0, gt=0)
    """An API server exits within a second of its engine core's death. One that lives longer after closing its port was asked
    to stop and finishes its requests (seen: 40 s after SIGTERM)."""

    loop_starts: int = Field(3, ge=2)
    """A crash loop is this many processes in a row that never answered."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """If its last `loop_lives` lives lasted less in total, the server crashes at its start or first requests: a restart does
    not help."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when the server has lived this long."""
