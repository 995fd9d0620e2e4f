"""The settings of notifiers."""

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
"""Steps of a restart that notifiers can report."""

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(STORIES)]

NOTIFIERS_MAX = 50
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        # The value may be the URL itself.
        raise problem(
            "the value (not shown) is not a variable name", "write a name such as NOTIFY_URLS"
        )
    return value


class NotifierSettings(Settings):
    """The keys that every notifier has."""

    name: Name
    """A slug, unique among all notifiers."""

    severities: tuple[Severity, ...] = ("page", "ticket")
    """Severities of incidents to send: `page` (critical), `ticket` (warning), `info`. With `[]`,
    only restarts are sent.
    Default: page, ticket
    Why: `info` belongs on the status page, not in messages."""

    kinds: tuple[Kind, ...] = Field((), max_length=50)
    """Send only incidents of these kinds. `target_unreadable` is a target that cannot be scraped.
    Default: all"""

    groups: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        (), max_length=1000
    )
    """Send only messages about these groups. Incidents that affect all targets go to every notifier.
    Default: all
    Why: A team can have its own channel."""

    restarts: tuple[Step, ...] = (
        "approval",
        "begun",
        "helped",
        "did_not_help",
        "failed",
        "uncertain",
    )
    """Steps of restarts to send: `dry_run`, `approval` (pending), `refused`, `breaker` (opened), `begun`, `helped`, `did_not_help`, `failed`, `uncertain`, `cancelled`.
    Default: approval, begun, helped, did_not_help, failed, uncertain
    Why: Actions and requests for approval need attention; refusals are normal."""

    resolved: bool = True
    """Whether to send another message when an incident ends.
    Why: The on-call engineer may be on the way."""

    reminder_hours: Annotated[float, Field(ge=0, le=168, allow_inf_nan=False)] = 4.0
    """Repeat interval for an open critical incident; 0: never repeat.
    Why: It is Alertmanager's default repeat_interval."""

    group_seconds: Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)] = 20.0
    """Events of one group with the same cause within this time are sent as one message.
    Why: Scrapes of many targets are spread over seconds."""

    messages_per_hour_max: int = Field(20, ge=1, le=1000)
    """Maximum messages per hour. Further alerts are collected in a digest. If any is critical, the
    digest is sent within five minutes.
    Why: People do not read more, and services block frequent senders."""

    timeout_seconds: Seconds = Field(15.0, le=120)
    """Timeout of one attempt to send.
    Why: A failed message is retried later."""


class WebhookNotifier(NotifierSettings):
    """A signed JSON POST to any service."""

    url: WebhookUrl
    """The URL to call."""

    secret_file: FilePath | None = None
    """File with the key of the HMAC-SHA256 signature; unset: unsigned."""

    bearer_file: FilePath | None = None
    """File with a token to send as `Authorization: Bearer`."""


def _no_url(value: object) -> object:
    if isinstance(value, str) and "://" in value:
        raise problem("the value (not shown) is a URL, not a file", "write the URL into a file")
    return value


class AppriseNotifier(NotifierSettings):
    """Slack, PagerDuty, e-mail and a hundred other services, through apprise (pip extra `apprise`)."""

    urls_file: Annotated[FilePath, BeforeValidator(_no_url)] | None = None
    """File with apprise URLs, one per line, readable only by vllm-watch."""

    urls_variable: Annotated[str, AfterValidator(_variable)] | None = None
    """Environment variable with the URLs, instead of a file."""

    @model_validator(mode="after")
    def _one_source(self) -> "AppriseNotifier":
        if (self.urls_file is None) == (self.urls_variable is None):
            cause = "needs urls_file or urls_variable, and not both"
            raise problem(cause, "write one of the two", "urls_file")
        return self


class KubernetesEvents(Settings):
    """Incidents as Events of the engine's pod (`kubectl describe pod`), sent with vllm-watch's service account."""

    name: Name
    """A slug, unique among all notifiers."""

    severities: tuple[Severity, ...] = ("page", "ticket")
    """Severities of incidents to send: `page` (critical), `ticket` (warning), `info`.
    Default: page, ticket
    Why: This is every notifier's default."""

    pod: str = Field("", max_length=253, pattern=r"^(\$[A-Za-z_][A-Za-z0-9_]*|[a-z0-9.-]*)$")
    """Pod that gets the Events of targets not found by discovery. In a sidecar, use `$POD_NAME`."""


AnyNotifier = NotifierSettings | KubernetesEvents


class NotificationsSettings(Sections):
    """Notifiers, for sites without an Alertmanager. Off until one is configured."""

    OTHERS: ClassVar = "Slack, PagerDuty, Teams, e-mail and others are sent through apprise: see docs/notifications.md"

    page_url: HttpUrl | None = None
    """URL of the status page in messages, if it differs from `external_url`.
    Default: `external_url`"""

    runbooks_url: HttpUrl | None = None
    """URL of your own copy of `docs/`.
    Default: the daemon's own copy"""

    unreadable_seconds: Seconds = Field(300.0, ge=30, le=86400)
    """Send a warning if a target cannot be scraped for this long.
    Why: Starts, restarts and rescheduling take less time."""

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
        kinds: tuple[tuple[str, Sequence[AnyNotifier]], ...] = (
            ("webhook", self.webhook), ("apprise", self.apprise), ("kubernetes", self.kubernetes),
        )  # fmt: skip
        return [(kind, each.name, each) for kind, found in kinds for each in found]
