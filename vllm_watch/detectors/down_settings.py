"""What `engine_down` judges by."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Silence is counted in scrapes and in seconds since the last scrape that had an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A refused connection is certain for its moment: nothing listens. A second one tells a crash from
    a proxy or a Service that points nowhere for an instant. With a second source (a failed health
    check before, a GPU that has gone, a dead process) one look is enough."""

    silent_looks: int = Field(3, ge=1)
    """One look in 200 meets no answer on healthy servers; three in a row by chance are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """At one look a second three are over soon: a large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """A server with a thousand connections has been seen silent for 16 s, and it recovered."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """Until then it is a warning: an API server that tokenizes a large prompt or writes megabytes of JSON answers
    nobody for some seconds. It pages later where it recovered from longer silences: after twice as long."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """... but no later than this: vLLM's clients have given up."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """A lost route comes back within seconds when a switch or a name server fails over; TCP sends its
    first packet again after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health says 503 when the engine core is dead; usually the server exits within a second of it. So many
    failed checks in a row without a token are a dead engine; so many looks at which tokens moved are none."""

    page_after_seconds: float = Field(180.0, gt=0)
    """A server that went while (almost) nobody used it may have been restarted on purpose: loading takes
    one to three minutes for most models. Longer where this one was seen to take longer. One that was
    emptied first is nothing at all until then."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that nobody had asked anything for so long, and that then goes, costs nobody anything that
    can be seen: it was scaled to zero, or moved at night. It pages never, unless it has outlived longer
    silences than this one: an autoscaler would have taken it then. Autoscalers wait as long or longer
    after the last request (Knative 60 s, KEDA 300 s)."""

    away_factor: float = Field(2.0, ge=1)
    """A server that goes when it is not used and comes back when it is has done nothing new until it has
    been away for twice as long as it ever was."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted only when it has been silent for twice as long as any silence it
    recovered from, and for no less than this."""

    exit_seconds: float = Field(3.0, gt=0)
    """When its engine core dies, the API server exits within a second. A process that lives on for longer
    behind a closed port was told to end, and finishes what it has (seen: 40 s after SIGTERM)."""

    loop_starts: int = Field(3, ge=2)
    """So many processes were started one after the other, and none of them ever answered."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """After so many restarts whose lives add up to less than this, it crashes because of how it is
    started, or of what it is sent at once: nothing that one more restart cures."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A server that has crashed in a loop has recovered when it has lived for so long."""
