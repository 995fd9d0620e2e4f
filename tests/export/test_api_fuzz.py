"""Whatever is sent to any operation of docs/openapi.json is answered in time, without a 500, and as the document says.

Requests are made from the document: parameters and bodies that fit their schemas, and ones that do not. Ours lead far
in, by names that exist; those of schemathesis know every corner of a schema.
"""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.examples import examples
from tests.export.test_openapi import DOCUMENT, check
from tests.restart.station import TOKEN, station
from vllm_watch.export import auth

ANSWER_SECONDS_MAX = 10.0
STREAMS = "/api/v1/events"
OPERATIONS = [
    (path, method)
    for path, each in DOCUMENT["paths"].items()
    for method in each
    if path != STREAMS  # never ends; its own tests read it
]

TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
# Names that exist lead further in than names that do not.
NAMES = st.sampled_from(["a", "b", "engine_stalled-a", "", "..", "%2e%2e", "a/b"]) | TEXT
# What a careless caller has in place of what belongs there; drawn often, the rest is for surprises.
WRONG = st.sampled_from([None, True, 5, -1, 1e308, "", [], {}, [None], {"a": None}])
VALUES = WRONG | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
ALERT = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["firing", "resolved"]) | VALUES,
        "labels": st.dictionaries(st.sampled_from(["target", "instance", "alertname"]), NAMES) | VALUES,
        "fingerprint": TEXT | VALUES,
    },
    optional={"startsAt": TEXT | VALUES},
)  # fmt: skip
BODIES = {
    "Why": st.fixed_dictionaries({"reason": TEXT | VALUES}, optional={"override_freeze": TEXT | VALUES}),
    "WhyAndHowLong": st.fixed_dictionaries({"reason": TEXT | VALUES}, optional={"minutes": st.floats(1, 90) | VALUES}),
    "MaybeWhy": st.fixed_dictionaries({}, optional={"reason": TEXT | VALUES}),
    "Nothing": st.just({}),
    "AlertGroup": st.fixed_dictionaries({"version": st.sampled_from(["4", "4", "4", 4]), "alerts": st.lists(ALERT, max_size=3) | VALUES}),
}  # fmt: skip


@dataclass
class Port:
    """Where the server listens; it lives in a loop and a thread of its own."""

    number: int


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """A daemon's whole API, with restarts wired, in mode observe: nothing is really restarted."""
    folder = tmp_path_factory.mktemp("station")
    started, ending = threading.Event(), threading.Event()
    found: list[Port] = []

    async def serve() -> None:
        async with station(folder, mode="observe", targets=("a", "b")) as one:
            one.incident()
            found.append(Port(one.server.port))
            started.set()
            await asyncio.to_thread(ending.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "CHANGES_MAX", 10**9)  # or what comes after the sixtieth is one word
        patch.setattr(auth, "ALERTS_MAX", 10**9)
        patch.setattr(auth, "FAILURES_MAX", 10**9)
        thread.start()
        assert started.wait(60)
        yield found[0]
        ending.set()
        thread.join(60)


def path_of(path: str, operation: dict[str, Any], data: st.DataObject) -> str:
    """The path with parameters that fit, and some that do not."""
    asked: dict[str, str] = {}
    for each in operation.get("parameters", ()):
        fitting = st.sampled_from(each["schema"]["enum"]) if "enum" in each["schema"] else NAMES
        number = st.floats(0, 80).map(str) | st.integers().map(str)
        value = data.draw(fitting | number | TEXT, label=each["name"])
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(value, safe=""))
        elif data.draw(st.booleans(), label=f"with {each['name']}"):
            asked[each["name"]] = value
    return f"{path}?{urlencode(asked)}" if asked else path


def body_of(operation: dict[str, Any], data: st.DataObject) -> bytes:
    """A body that fits, one that nearly does, or none at all of the kind."""
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if not schema:
        return data.draw(st.just(b"") | st.binary(max_size=20), label="body")
    fitting = BODIES[schema["schema"]["$ref"].rpartition("/")[2]]
    written = st.one_of(fitting, fitting, fitting, VALUES).map(
        lambda value: json.dumps(value).encode()
    )
    return data.draw(st.one_of(written, written, st.binary(max_size=200)), label="body")


def asked(port: Port, method: str, path: str, body: bytes, token: str) -> tuple[int, str, bytes]:
    """Status, content type and body of one answer. Raises where none comes in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=ANSWER_SECONDS_MAX)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request(method.upper(), path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "method"), OPERATIONS, ids=lambda value: value.strip("/") or "page"
)
@given(data=st.data())
@examples(150)
def test_every_operation_answers_as_the_document_says(
    port: Port, path: str, method: str, data: st.DataObject
) -> None:
    """Among the statuses that it lists, none of them a 500 but where a reload is refused, and by the schema."""
    operation = DOCUMENT["paths"][path][method]
    where = path_of(path, operation, data)
    token = data.draw(st.sampled_from([*[TOKEN] * 7, "wrong-0123456789abcdef"]), label="token")
    status, kind, content = asked(port, method, where, body_of(operation, data), token)
    responses = operation["responses"]
    if status == 404 and "404" not in responses:
        return  # an empty name in a path is another path
    assert str(status) in responses, (status, content)
    assert status not in (500, 502), content
    schema = responses[str(status)].get("content", {}).get("application/json", {}).get("schema")
    if kind == "application/json":
        assert schema is not None, (status, content)
        check(schema, json.loads(content))


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# A reason is a line of printable characters that is not blank, which no schema says.
NOT_CHECKED = [positive_data_acceptance]


@SCHEMA.exclude(path=STREAMS).parametrize()
@examples(10)
def test_schemathesis_finds_nothing(case: schemathesis.Case, port: Port) -> None:
    """By its own checks: statuses, content types, headers and schemas as documented, no 5xx, wrong data refused."""
    case.call_and_validate(
        excluded_checks=NOT_CHECKED,
        base_url=f"http://127.0.0.1:{port.number}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=ANSWER_SECONDS_MAX,
    )


def test_it_is_the_document_that_is_held(port: Port) -> None:
    """A good request of each kind is answered well: the fuzz does not only collect refusals."""
    for method, path, body in (
        ("get", "/api/v1/status", b""),
        ("get", "/api/v1/incidents?state=open", b""),
        ("get", "/api/v1/incidents/engine_stalled-a", b""),
        ("get", "/api/v1/history?target=a", b""),
        ("post", "/api/v1/incidents/engine_stalled-a/silence", b'{"reason": "x", "minutes": 1}'),
        ("post", "/api/v1/pause", b'{"reason": "x", "minutes": 1}'),
        ("post", "/api/v1/resume", b"{}"),
        ("post", "/-/reload", b""),
        ("post", "/api/v1/alertmanager", b'{"version": "4", "alerts": []}'),
    ):
        status, _, content = asked(port, method, path, body, TOKEN)
        assert status == 200, (path, content)


def test_operations_are_those_of_the_document() -> None:
    """None is left out by mistake."""
    assert len(OPERATIONS) >= 19
    assert (Path(__file__).parents[2] / "docs/openapi.json").exists()
