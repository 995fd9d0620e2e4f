"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """The limits of a server's silence, in scrapes and seconds. Silence is a time without an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A server is down after this many refused scrapes in a row. A proxy or Service without a
    backend may refuse one. With other evidence (a failed health check, a lost GPU, a dead process),
    one refusal suffices."""

    silent_looks: int = Field(3, ge=1)
    """A server is silent after this many scrapes in a row without a response. Healthy servers miss
    one scrape in 200."""

    silent_seconds: float = Field(5.0, gt=0)
    """Silence must also last this long. A large prompt may block the event loop for longer than
    three scrapes take."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """Replaces silent_seconds for busy servers. A server with a thousand connections recovered
    after 16 s."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A silent server is reported as critical after this many seconds, and after at least twice the
    longest silence that it survived."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """A hanging server pages after at most this many seconds of silence. Clients give up sooner."""

    unreachable_looks: int = Field(3, ge=1)
    """A server is unreachable after this many failed attempts to connect in a row."""

    unreachable_seconds: float = Field(15.0, gt=0)
    """Attempts to connect must also fail for this long. TCP resends its first packet after 1, 2, 4
    and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """An engine core is dead after this many failed health checks (503) in a row, unless new tokens
    arrive."""

    page_after_seconds: float = Field(180.0, gt=0)
    """If an (almost) unused server ends, it pages after this many seconds. It may have been
    restarted on purpose, and most models load in one to three minutes. A server that loads longer
    gets more time."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that ends after this many seconds without requests does not page. An autoscaler may
    have removed it (Knative after 60 s, KEDA after 300 s). If the server stayed up through several
    longer idle times, its end may page."""

    away_factor: float = Field(2.0, ge=1)
    """A server that ends when unused and starts on demand may be away for this multiple of its
    longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A restart is advised after this many seconds of silence, but not before twice the longest
    silence that the server survived."""

    exit_seconds: float = Field(3.0, gt=0)
    """A process that still runs this many seconds after its port closed was asked to stop. After a
    crash of the engine core, the API server exits within a second."""

    loop_starts: int = Field(3, ge=2)
    """A server is in a crash loop after this many processes in a row that never answered."""

    loop_lives: int = Field(2, ge=1)
    """A server is in a crash loop after this many processes in a row that answered but crashed soon
    (`loop_seconds`)."""

    loop_seconds: float = Field(300.0, gt=0)
    """The last `loop_lives` processes of a crash loop lived for less than this in total."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when a process has been up for this many seconds."""
