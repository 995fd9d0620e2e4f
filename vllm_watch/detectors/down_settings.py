"""Settings of `engine_down`."""

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Silence counts in scrapes and in seconds since the last answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    refused_looks: int = Field(2, ge=1)
    """A refusal is certain for its moment; a second excludes a proxy or Service that points nowhere for an instant. With other evidence one suffices."""

    silent_looks: int = Field(3, ge=1)
    """Healthy servers miss one scrape in 200, three in a row once in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """A large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """A server with a thousand connections was silent for 16 s and recovered."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A warning until then: large prompts or JSON take seconds. It pages at twice the longest survived silence."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """Page by then: clients have given up."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """Failover of a switch or name server takes seconds; TCP resends after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health returns 503 when the engine core is dead; the server exits within a second. As many in a row without a token: dead."""

    page_after_seconds: float = Field(180.0, gt=0)
    """An unused server may be restarted on purpose: most models load in one to three minutes, some longer. A drained server is not reported until then."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that goes idle was scaled to zero or moved: it costs no users and never pages, unless it outlived longer silences. Autoscalers wait as long (Knative 60 s, KEDA 300 s)."""

    away_factor: float = Field(2.0, ge=1)
    """An unused server's return on demand is normal up to twice its longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted after this time, and after twice the longest silence it survived."""

    exit_seconds: float = Field(3.0, gt=0)
    """An API server exits within a second of its core's death; one that outlives its port finishes requests (seen: 40 s after SIGTERM)."""

    loop_starts: int = Field(3, ge=2)
    """This many processes in a row never answered."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """If the lives before add up to less, its start or first requests crash it: no restart helps."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when the server has lived this long."""
