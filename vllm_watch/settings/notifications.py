"""Who is told of what is wrong, where no Alertmanager does it: one list per kind, one model per kind."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vllm_watch.settings.base import (
    FilePath,
    HttpUrl,
    Name,
    Problem,
    Seconds,
    Sections,
    Settings,
    WebhookUrl,
    problem,
    problems,
    quoted,
)
from vllm_watch.story.kinds import STORIES

Severity = Literal["page", "ticket", "info"]
Step = Literal[
    "dry_run", "approval", "refused", "breaker", "begun", "helped", "did_not_help", "failed",
    "uncertain", "cancelled",
]  # fmt: skip
"""What may be told of a restart."""

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(STORIES)]

NOTIFIERS_MAX = 50
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        # Not shown: many would put the URL itself here.
        raise problem(
            "the value (not shown) is not the name of a variable",
            "write a name such as NOTIFY_URLS",
        )
    return value


class NotifierSettings(Settings):
    """What every notifier has: its name, what it is told, and how often at most."""

    name: Name
    """What it is called: a slug, unique among all notifiers."""

    severities: tuple[Severity, ...] = ("page", "ticket")
    """Which incidents: `page` (critical), `ticket` (warning), `info`; `[]`: none, only restarts. Of one that becomes worse, the
    worse counts.
    Default: page, ticket
    Why: Info is for who looks, not for who is told."""

    kinds: tuple[Kind, ...] = Field((), max_length=50)
    """Only incidents of these kinds; `target_unreadable` is that of a target that cannot be read.
    Default: all
    Why: What is not told is not known."""

    groups: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        (), max_length=1000
    )
    """Only targets of these groups. What all targets share is told to everybody.
    Default: all
    Why: A team has its own channel."""

    restarts: tuple[Step, ...] = (
        "approval",
        "begun",
        "helped",
        "did_not_help",
        "failed",
        "uncertain",
    )
    """Which steps of restarts: `dry_run` (mode observe: it would have run), `approval` (it waits for
    approval), `refused` (by which gate), `breaker` (only a person may try again), `begun`, and how
    it ended: `helped`, `did_not_help`, `failed`, `uncertain`, `cancelled`.
    Default: approval, begun, helped, did_not_help, failed, uncertain
    Why: What was done, and what waits for a person. A gate that holds back is normal, and what opens a
    breaker is told as did_not_help, failed or uncertain."""

    resolved: bool = True
    """Tell the end, too, of what it was told of?
    Why: Somebody may be on the way to a desk."""

    reminder_hours: Annotated[float, Field(ge=0, le=168, allow_inf_nan=False)] = 4.0
    """Repeat a critical incident this often while it is open; 0: never.
    Why: Alertmanager's own repeat_interval."""

    group_seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 20.0
    """What happens within this time for one cause in one group is one message.
    Why: Looks at many targets are spread over seconds."""

    messages_per_hour_max: int = Field(20, ge=1, le=1000)
    """More than so many in an hour become one digest; a digest with critical incidents is sent within five
    minutes all the same.
    Why: Nobody reads the twenty-first, and services block who sends it."""

    timeout_seconds: Seconds = Field(15.0, le=120)
    """How long one try may take.
    Why: Who has not taken a message by then is tried again later."""


class WebhookNotifier(NotifierSettings):
    """A POST of JSON, signed, to whatever you like."""

    url: WebhookUrl
    """Where to send it."""

    secret_file: FilePath | None = None
    """File with the key of the HMAC-SHA256 signature; none: not signed."""

    bearer_file: FilePath | None = None
    """File with a token that is sent as `Authorization: Bearer`."""


def _no_url(value: object) -> object:
    if isinstance(value, str) and "://" in value:
        raise problem("the value (not shown) is a URL, not a file", "write the URL into a file")
    return value


class AppriseNotifier(NotifierSettings):
    """Slack, PagerDuty, Telegram, e-mail, Teams and a hundred more, through the library apprise (an extra)."""

    urls_file: Annotated[FilePath, BeforeValidator(_no_url)] | None = None
    """File with apprise URLs, one a line; readable by nobody but vllm-watch, since they hold tokens."""

    urls_variable: Annotated[str, AfterValidator(_variable)] | None = None
    """Instead: the name of an environment variable with apprise URLs, white space between them."""

    @model_validator(mode="after")
    def _one_place(self) -> "AppriseNotifier":
        if (self.urls_file is None) == (self.urls_variable is None):
            cause = "needs urls_file or urls_variable, and not both"
            raise problems([Problem(("urls_file",), cause, "write one of the two")])
        return self


class KubernetesEvents(Settings):
    """Incidents as Events of the engine's pod: `kubectl describe pod` shows them. As the service account of our own pod."""

    name: Name
    """What it is called: a slug, unique among all notifiers."""

    severities: tuple[Severity, ...] = ("page", "ticket")
    """Which incidents: `page` (critical), `ticket` (warning), `info`.
    Default: page, ticket
    Why: As for other notifiers."""

    pod: str = Field("", max_length=253, pattern=r"^(\$[A-Za-z_][A-Za-z0-9_]*|[a-z0-9.-]*)$")
    """Pod of the targets of which none is known, since no discovery found them: beside an engine our own, `$POD_NAME`
    from `metadata.name`.
    Default: none: of such targets nothing is told"""


AnyNotifier = NotifierSettings | KubernetesEvents


class NotificationsSettings(Sections):
    """Who is told, where no Alertmanager does it. Off until one is written."""

    OTHERS: ClassVar = "Slack, PagerDuty, Teams, e-mail and others are sent through apprise: see docs/notifications.md"

    page_url: HttpUrl | None = None
    """The page's address in messages, where it is not `external_url`.
    Default: none: `external_url`"""

    runbooks_url: HttpUrl | None = None
    """Where you serve the `docs/` of vllm-watch yourself: `https://…/docs`.
    Default: none: the runbooks that the daemon serves under `page_url`; without one, paths in the repository"""

    unreadable_seconds: Seconds = Field(300.0, ge=30, le=86400)
    """A target that could not be read for so long, and of which no incident says why, is sent as a warning.
    Why: What starts, restarts or is moved is back before."""

    webhook: tuple[WebhookNotifier, ...] = Field((), max_length=NOTIFIERS_MAX)
    apprise: tuple[AppriseNotifier, ...] = Field((), max_length=NOTIFIERS_MAX)
    kubernetes: tuple[KubernetesEvents, ...] = Field((), max_length=NOTIFIERS_MAX)

    @model_validator(mode="after")
    def _names_differ(self) -> "NotificationsSettings":
        names = [name for _, name, _ in self.each()]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            remedy = "give each its own name"
            raise problems(
                [Problem((), f"{quoted(n)} is the name of two notifiers", remedy) for n in twice]
            )
        return self

    def each(self) -> Sequence[tuple[str, str, AnyNotifier]]:
        """Return kind, name and settings of every one."""
        kinds: tuple[tuple[str, Sequence[AnyNotifier]], ...] = (
            ("webhook", self.webhook), ("apprise", self.apprise), ("kubernetes", self.kubernetes),
        )  # fmt: skip
        return [(kind, each.name, each) for kind, found in kinds for each in found]
