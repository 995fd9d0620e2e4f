"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """A silence is a time without an answer, counted in scrapes and in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A server is down after this many refused scrapes in a row: a single refusal may come from a proxy or Service
    that points nowhere for an instant. With other evidence (a failed health check, a lost GPU, a dead process) one
    suffices."""

    silent_looks: int = Field(3, ge=1)
    """A server is silent after this many scrapes without a response. Healthy servers miss one scrape in 200; three in a row
    are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """The silence must also last this long: three scrapes take three seconds or less, but a large prompt can block the event
    loop for longer."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """Replaces silent_seconds for busy servers: one with a thousand connections recovered after 16 s of silence."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A shorter silence is only a warning: tokenizing a large prompt takes seconds. If a server has recovered from a
    longer silence, it pages after twice the longest."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Upper bound of the time before a page: by then clients have given up."""

    unreachable_looks: int = Field(3, ge=1)
    """A server is unreachable after this many failed attempts to connect in a row."""

    unreachable_seconds: float = Field(15.0, gt=0)
    """The attempts must also fail for this long: TCP resends its first packet after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health returns 503 when the engine core is dead, and the server usually exits within a second. This many failures in
    a row mean a dead engine, unless new tokens show that it lives."""

    page_after_seconds: float = Field(180.0, gt=0)
    """The end of an (almost) unused server leads to a page only after this time, because it may have been restarted
    on purpose. Most models load in one to three minutes; a server that loads longer gets more time. A drained server
    is not reported before this time."""

    idle_seconds: float = Field(60.0, gt=0)
    """The end of a server that had no requests for this long does not page: an autoscaler may have removed it
    (Knative after 60 s, KEDA after 300 s). If the server once stayed up through a longer idle time, its end may
    page."""

    away_factor: float = Field(2.0, ge=1)
    """A server that ends when unused, and starts again on demand, may stay away for this many times its longest absence so
    far."""

    advise_seconds: float = Field(30.0, gt=0)
    """A restart of a silent server is advised after this time, or after twice the longest silence from which it recovered."""

    exit_seconds: float = Field(3.0, gt=0)
    """If a process lives this long after closing its port, it was asked to stop and is finishing its requests. After
    a crash of the engine core, the API server exits within a second."""

    loop_starts: int = Field(3, ge=2)
    """A crash loop is this many processes in a row that never answered."""

    loop_lives: int = Field(2, ge=1)
    """This many processes in a row that answered but soon crashed (`loop_seconds`) are a crash loop, too."""

    loop_seconds: float = Field(300.0, gt=0)
    """If the last `loop_lives` processes lived for less than this in total, the server crashes at its start or at its first
    requests, and a restart does not help."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when the server has lived this long."""
