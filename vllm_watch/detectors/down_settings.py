"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Limits of a server's silence, a time without an answer, in scrapes and seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """Refused scrapes in a row before a server is down. A proxy or Service without a backend may
    refuse one. With other evidence (a failed health check, a lost GPU, a dead process), one
    suffices."""

    silent_looks: int = Field(3, ge=1)
    """Scrapes in a row without a response before a server is silent. Healthy servers miss one
    scrape in 200, and three in a row once in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """Minimum seconds of silence. Three scrapes may take less time than a large prompt blocks the
    event loop."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """Replaces silent_seconds for busy servers. One with a thousand connections recovered after
    16 s."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """Minimum seconds of silence before a page, or twice the longest silence that the server
    survived. Tokenizing a large prompt takes seconds."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Maximum seconds of silence before a page. Clients give up sooner."""

    unreachable_looks: int = Field(3, ge=1)
    """Failed attempts to connect in a row before a server is unreachable."""

    unreachable_seconds: float = Field(15.0, gt=0)
    """Minimum seconds of failed attempts to connect. TCP resends its first packet after 1, 2, 4 and
    8 s."""

    dead_looks: int = Field(2, ge=1)
    """Failed health checks (503) in a row before an engine core is dead, unless new tokens arrive.
    The server usually exits within a second of its core's death."""

    page_after_seconds: float = Field(180.0, gt=0)
    """Seconds before a page if an (almost) unused server ends. It may have been restarted on
    purpose, and most models load in one to three minutes. A server that loads longer gets more
    time. A drained server is not reported earlier."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that ends after this many seconds without requests does not page. An autoscaler may
    have removed it (Knative after 60 s, KEDA after 300 s). If the server once stayed up through a
    longer idle time, its end may page."""

    away_factor: float = Field(2.0, ge=1)
    """A server that ends when unused and starts on demand may be away for this multiple of its
    longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """Minimum seconds of silence before a restart is advised, or twice the longest silence that the
    server survived."""

    exit_seconds: float = Field(3.0, gt=0)
    """Minimum seconds that a process runs after closing its port if it was asked to stop. After a
    crash of the engine core, the API server exits within a second."""

    loop_starts: int = Field(3, ge=2)
    """A server is in a crash loop after this many processes in a row that never answered."""

    loop_lives: int = Field(2, ge=1)
    """A server is in a crash loop after this many processes in a row that answered but crashed
    within `loop_seconds`."""

    loop_seconds: float = Field(300.0, gt=0)
    """Maximum total lifetime of the last `loop_lives` processes in a crash loop. A restart does not
    help them."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """Seconds that a process must live to end a crash loop."""
