"""Writes docs/openapi.json: every route of the HTTP API, what it takes, and what it answers.

What is shown are records, and their schemas are made from them. A test holds that the routes here are those of
the router, and that answers are as they say.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from vllm_watch import __version__
from vllm_watch.board.health import SourceHealth, StoreHealth
from vllm_watch.board.history import SPANS
from vllm_watch.board.restarts import RestartPlan, RestartState
from vllm_watch.board.uptime import STATES
from vllm_watch.export.operator_api import MINUTES_MAX, TEXT_CHARACTERS_MAX
from vllm_watch.export.status import LEFT_OUT
from vllm_watch.incidents import way
from vllm_watch.incidents.incident import Incident
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import Advice, Sight, TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry
from vllm_watch.story.base import Step, Story

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

PAGE = Path(__file__).parent / "openapi.json"
Schema = dict[str, Any]
RECORDS = (TargetSignals, Sight, Advice, Incident, RestartPlan, RestartState, SourceHealth, StoreHealth, Target, GpuReading, Story, Step, Entry, Attempt)  # fmt: skip

TEXT: Schema = {"type": "string", "maxLength": TEXT_CHARACTERS_MAX}
MINUTES: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": MINUTES_MAX}
ERROR = "An error: what is wrong, and what to do."


def ref(name: str) -> Schema:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def optional(schema: Schema) -> Schema:
    """Or null: unknown, or there is none."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """A mapping to these."""
    return {"type": "object", "additionalProperties": schema}


def record(**properties: Schema) -> Schema:
    """An object that always has these keys; later versions may add more."""
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def more(name: str, **properties: Schema) -> Schema:
    """A record with further keys."""
    return {"allOf": [ref(name), record(**properties)]}


def _of_records() -> Schema:
    """Those of the records, as they are shown."""
    found: Schema = {}
    for kind in RECORDS:
        made = TypeAdapter(kind).json_schema(
            mode="serialization", ref_template="#/components/schemas/{model}"
        )
        found |= made.pop("$defs", {})
        found[kind.__name__] = made
    for schema in found.values():
        _as_shown(schema)
    for name, keys in LEFT_OUT.items():
        for key in keys:
            found[name]["properties"].pop(key)
            found[name]["required"].remove(key)
    del found["EngineTotals"]
    # A failed start is told in another form.
    found["TargetSignals"]["properties"]["start_failure"] = optional(record(
        **{"class": {"type": "string"}, "deterministic": {"type": "boolean"}},
        root_cause_line=optional({"type": "string"}), explanation={"type": "string"},
    ))  # fmt: skip
    _under_shown_names(found["Incident"])
    return found


def schemas() -> Schema:
    """Those of the records, and of what is put together from them."""
    text, number = {"type": "string"}, {"type": ["number", "null"]}
    told = "title says first_step cost severity_reason restart_outcome runbook runbook_url"
    words = dict.fromkeys(told.split(), text)
    incident = more("Incident", state={"enum": ["open", "resolved"]}, **words)
    return _of_records() | {
        "IncidentShown": incident,
        "IncidentExplained": {"allOf": [ref("IncidentShown"), {"type": "object", "properties": {"explanation": record(
            severity=text, no_page=text, no_restart=text, way=listed(TypeAdapter(way.Step).json_schema(mode="serialization")),
        )}}]},
        "TargetShown": more(
            "Target", interval_seconds=number, state=text, state_text=text, detectors=by_name(ref("Sight")),
            advice=listed(ref("Advice")), signals=optional(ref("TargetSignals")),
            sources=by_name(ref("SourceHealth")), restart=optional(ref("RestartPlan")),
            incidents=listed(ref("IncidentShown")),
        ),
        "Status": record(
            version=text, t=number, started_timestamp_seconds=number, uptime_seconds=number,
            window_seconds=number, history_seconds=number, history_spans=listed(number), store=optional(ref("StoreHealth")),
            restarts=optional(ref("RestartState")), not_ready={"type": ["string", "null"]},
            sources=by_name(ref("SourceHealth")), gpus=optional(ref("GpuReading")),
            takes_tokens={"type": "boolean"}, links=by_name(text), host=record(name=text, incidents=listed(ref("IncidentShown"))),
            targets=listed(ref("TargetShown")), story=by_name(ref("Story")), restart_steps=by_name(ref("Step")),
        ),
        "Incidents": record(incidents=listed(ref("IncidentShown"))),
        "JournalEntry": {"allOf": [ref("Entry"), {"type": "object", "properties": {"attempt": ref("Attempt")}}]},
        "Journal": record(
            lost={"type": ["string", "null"]}, older={"type": "boolean"}, entries=listed(ref("JournalEntry")),
        ),
        "History": record(target=text, t=number, seconds=number, engines=by_name(record(
            t=listed(number), series=by_name(listed(number)),
        )), day=optional(record(t=number, seconds=number, states=listed({"enum": list(STATES)}))), uptime=listed(record(seconds=number, up_ratio=optional(number), unknown_ratio=number))),
        "Probes": record(liveness_asked_seconds=number, starts=listed(number)),
        "Reloaded": record(reloaded={"const": True}),
        "Said": record(text=text),
        "Alerts": record(**{name: listed(text) for name in ("asked", "known", "cancelled", "ignored")}),
        "Refused": record(error=text, remedy=text),
        "Why": {
            "type": "object", "additionalProperties": False, "required": ["reason"],
            "properties": {"reason": TEXT, "override_freeze": TEXT},
        },
        "WhyAndHowLong": {
            "type": "object", "additionalProperties": False, "required": ["reason"],
            "properties": {"reason": TEXT, "minutes": MINUTES},
        },
        "MaybeWhy": {
            "type": "object", "additionalProperties": False, "properties": {"reason": TEXT},
        },
        "Nothing": {"type": "object", "maxProperties": 0},
        "AlertGroup": {"type": "object", "description": "Alertmanager's webhook payload, version 4."},
    }  # fmt: skip


def _under_shown_names(incident: Schema) -> None:
    """Times and evidence have names of the API's own, and what judgement alone needs is not shown."""
    properties, number = incident["properties"], {"type": ["number", "null"]}
    sides = {side: properties.pop(f"evidence_{side}") for side in ("for", "against")}
    for key in (
        "firing",
        "opened_t",
        "updated_t",
        "resolved_t",
        "began_t",
        "ended_t",
        "closes_t",
    ):
        properties.pop(key)
    times = (
        f"{name}_timestamp_seconds"
        for name in ("opened", "updated", "resolved", "began", "ended", "closes")
    )
    properties |= {"evidence": record(**sides), **dict.fromkeys(times, number)}
    incident["required"] = sorted(properties)


def _as_shown(schema: Any) -> None:
    """Every key of a record is always there, and what JSON cannot say of a number is null."""
    if isinstance(schema, list):
        for each in schema:
            _as_shown(each)
    if not isinstance(schema, dict):
        return
    schema.pop("title", None)
    schema.pop("default", None)
    if schema.get("type") == "number":
        schema["type"] = ["number", "null"]
    if isinstance(schema.get("properties"), dict):
        schema["required"] = sorted(schema["properties"])
    for key, each in list(schema.items()):
        if key == "properties":
            for inner in each.values():
                _as_shown(inner)
        else:
            _as_shown(each)


def answers(good: Schema, *refusals: int, status: int = 200) -> Schema:
    """The answers of one operation: the good one, and the errors that it may be."""
    everywhere = {400, 401, 413, 415, 421, 429, 403, 408}
    errors = {
        str(each): {"description": ERROR, "content": {"application/json": {"schema": ref("Refused")}}}
        for each in sorted(everywhere | set(refusals))
    }  # fmt: skip
    return {str(status): good} | errors


def said(schema: Schema, what: str = "As asked.") -> Schema:
    """An answer in JSON."""
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def plain(kind: str, what: str) -> Schema:
    """An answer of another type."""
    return {"description": what, "content": {kind: {"schema": {"type": "string"}}}}


def query(name: str, schema: Schema, *, required: bool = False) -> Schema:
    """A parameter behind the question mark."""
    return {"name": name, "in": "query", "required": required, "schema": schema}


def change(summary: str, body: str | None, *refusals: int, name: str | None = None, good: str = "Said") -> Schema:  # fmt: skip
    """An operation that changes something: with a token, and a small JSON body (None: it is not read)."""
    known = said(ref(good), "Done.")
    found: Schema = {
        "summary": summary, "security": [{"token": []}],
        "responses": answers(known, 409, 503, 504, *refusals) | {"202": said(ref(good), "Begun.")},
    }  # fmt: skip
    if body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": ref(body)}}}
    if name is not None:
        schema = {"type": "string", "minLength": 1}
        found["parameters"] = [{"name": name, "in": "path", "required": True, "schema": schema}]
    return {"post": found}


OPTIONAL: Schema = {
    "/api/v1/notifiers/{name}/test": change("Send a test message through one notifier", "Nothing", name="name"),
    "/public": {"get": {"summary": "The public view, if api.public is set", "responses": answers(plain("text/html", "Names, states and uptime."))}},
    "/public/style.css": {"get": {"summary": "The public view's style sheet", "responses": answers(plain("text/css", "A style sheet."))}},
    "/public/live.js": {"get": {"summary": "The public view's script, which reloads the view every 10 s", "responses": answers(plain("text/javascript", "A script."))}},
}  # fmt: skip


def paths() -> Schema:
    """Every route."""
    text: Schema = {"type": "string"}
    target = query("target", text, required=True)
    page = {"text/html; charset=utf-8": {"schema": text}}
    gate = [target, query("started", text), query("asked", {"type": "string", "pattern": "^[0-9A-Za-z.-]{0,40}$"})]  # fmt: skip
    by_id = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]  # fmt: skip
    return {
        "/": {"get": {"summary": "The status page", "responses": answers({"description": "HTML.", "content": page}) | {"304": {"description": "As before."}}}},
        "/page/{name}": {"get": {
            "summary": "Scripts, styles and images of the page",
            "parameters": [{"name": "name", "in": "path", "required": True, "schema": text}],
            "responses": answers({"description": "The file."}, 404) | {"304": {"description": "As before."}},
        }},
        "/runbooks/{name}": {"get": {
            "summary": "This version's runbook for restarts, the alerts or a kind of incident",
            "parameters": [{"name": "name", "in": "path", "required": True, "schema": text}],
            "responses": answers({"description": "HTML.", "content": page}, 404) | {"304": {"description": "As before."}},
        }},
        "/metrics": {"get": {"summary": "Prometheus' text format, or OpenMetrics", "responses": answers(plain("text/plain", "Metrics."))}},
        "/-/healthy": {"get": {"summary": "Liveness: the process answers", "security": [{}], "responses": answers(plain("text/plain", "It does."))}},
        "/-/ready": {"get": {"summary": "Readiness: there are results to show", "responses": answers(plain("text/plain", "There are.")) | {"503": plain("text/plain", "Not yet, and why.")}}},
        "/-/reload": change("Reload the configuration; needs no token on this host", None, 404, 500, good="Reloaded"),
        "/api/v1/status": {"get": {"summary": "The complete current state", "responses": answers(said(ref("Status")))}},
        "/api/v1/incidents": {"get": {
            "summary": "Open and recently closed incidents",
            "parameters": [query("target", text), query("state", {"enum": ["open", "resolved"]})],
            "responses": answers(said(ref("Incidents"))),
        }},
        "/api/v1/incidents/{id}": {"get": {"summary": "One incident; debug=true adds how its verdict was reached",
            "parameters": [*by_id, query("debug", {"enum": ["true"]})], "responses": answers(said(ref("IncidentExplained")), 404),
        }},
        "/api/v1/history": {"get": {
            "summary": "The charts of a target over the last `seconds` (default 600), or of an incident (until now or its end)",
            "parameters": [query("target", text), query("engine", text), query("seconds", {"type": "number", "exclusiveMinimum": 0, "maximum": SPANS[-1]}), query("incident", text)],
            "responses": answers(said(ref("History")), 400, 404),
        }},
        "/api/v1/journal": {"get": {
            "summary": "The restart journal after `since` (Unix seconds); `older` is true if there are earlier entries",
            "parameters": [query("since", {"type": "number"})], "responses": answers(said(ref("Journal")), 404, 503),
        }},
        "/api/v1/events": {"get": {"summary": "Live updates, as server-sent events", "responses": answers(plain("text/event-stream", "A stream without end."), 503)}},
        "/api/v1/recording": {"get": {
            "summary": "The last minutes of a target, as a recording",
            "parameters": [target, query("minutes", {"type": "number", "exclusiveMinimum": 0, "maximum": 60})],
            "responses": answers({"description": "gzip.", "content": {"application/gzip": {}}}, 404, 503),
        }},
        "/api/v1/targets/{target}/restart": change("Restart a target now, through the guard", "Why", 404, name="target"),
        "/api/v1/incidents/{id}/approve": change("Approve the restart that an incident waits for", "Nothing", 404, name="id"),
        "/api/v1/incidents/{id}/silence": change("Block restarts for one incident for a while", "WhyAndHowLong", 404, name="id"),
        "/api/v1/pause": change("Pause all restarts for a while", "WhyAndHowLong"),
        "/api/v1/resume": change("End a pause", "MaybeWhy"),
        "/api/v1/alertmanager": change("Alertmanager's webhook", "AlertGroup", good="Alerts"),
        "/gate/{which}": {"get": {
            "summary": "The answer for an exec probe in the engine's container",
            "parameters": [{"name": "which", "in": "path", "required": True, "schema": {"enum": ["liveness", "readiness"]}}, *gate],
            "responses": answers(plain("text/plain", "ok, or the gate's word."), 404),
        }},
        "/gate/probes": {"get": {"summary": "The gate's latest probes", "parameters": [target], "responses": answers(said(ref("Probes")), 404)}},
    }  # fmt: skip


def document() -> Schema:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vllm-watch", "version": __version__, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "What a vllm-watch serves. Later versions add keys and never take one away. Every error is "
                           "{error, remedy}. Made by docs/generate_openapi.py.",
        },
        "servers": [{"url": "http://127.0.0.1:9470"}],
        "security": [{}, {"password": []}],
        "paths": paths() | OPTIONAL,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "One of api.tokens."},
                "password": {"type": "http", "scheme": "basic", "description": "One of basic_auth_users, where there are any."},
            },
        },
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: json.dumps(document(), indent=1, sort_keys=True) + "\n"}))
