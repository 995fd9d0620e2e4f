"""The one combination of facts in which the guard acts, to differ from in one thing at a time."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from vllm_watch.incidents.incident import Incident
from vllm_watch.restart import guard
from vllm_watch.restart.facts import Answer, Facts, Peers, RestartRequest
from vllm_watch.settings.restart import BlockersSettings, LockSettings, RestartSettings
from vllm_watch.settings.restart_times import FreezeSettings
from vllm_watch.state.attempt import Attempt

NOW = 1_790_000_000.0  # Mon 2026-09-21 14:13:20 UTC
REQUEST = RestartRequest(
    target="chat-0", group="chat", trigger="incident", reason="no step for 90 s", asked_t=NOW,
    engine="0", incident_id="i1", kind="engine_stalled", cause="hang",
)  # fmt: skip
PERSON = replace(REQUEST, trigger="manual", actor="ana", incident_id=None)
SETTINGS = RestartSettings(
    mode="auto", hook="systemd", blockers=BlockersSettings(alerts=".*"), lock=LockSettings(kind="file")
)  # fmt: skip
INCIDENT = Incident(
    id="i1", target="chat-0", engine="0", kind="engine_stalled", cause="hang", severity="page",
    summary="no step for 90 s", restart_advised=True, opened_t=NOW - 90, began_t=NOW - 90, updated_t=NOW,
)  # fmt: skip
ON_HOST = replace(
    INCIDENT, target="host:gpu-1", engine=None, kind="gpu_fault", cause="xid", concerns=("chat-0", "chat-1"),
    restart_targets=("chat-1",),
)  # fmt: skip
FACTS = Facts(
    t=NOW, stale=None, state="stalled", attempts=(), incident=INCIDENT,
    peers=Peers(healthy=3, total=4), version_first_t=NOW - 7200, startup_seconds=600,
    hook=Answer(name="systemd", allows=True, text=""),
    blockers=(Answer(name="prometheus", allows=True, text="no alert fires"),),
    lock=Answer(name="file", allows=True, text="taken"),
)  # fmt: skip


def frozen(begin_t: float, end_t: float, reason: str = "") -> dict[str, Any]:
    """A freeze, as settings."""
    begin, end = (datetime.fromtimestamp(t, UTC) for t in (begin_t, end_t))
    return {"freezes": (FreezeSettings(begin=begin, end=end, reason=reason),)}


def attempt(ago_seconds: float, state: str, **more: Any) -> Attempt:
    """An attempt of the group that touched its server so long ago."""
    begun_t = NOW - ago_seconds
    known: dict[str, Any] = {
        "id": f"a{ago_seconds:.0f}", "target": "chat-1", "group": "chat", "trigger": "incident",
        "hook": "systemd", "reason": "", "actor": "vllm-watch", "began_t": begun_t, "called_t": begun_t,
    }  # fmt: skip
    return Attempt(state=state, **known | more)


def asked(
    request: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    base: RestartRequest = REQUEST,
) -> guard.Decision:
    return guard.decide(
        replace(base, **request or {}),
        SETTINGS.model_copy(update=settings or {}),
        replace(FACTS, **facts or {}),
    )
