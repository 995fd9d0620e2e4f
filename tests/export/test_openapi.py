"""docs/openapi.json: every route is in it and every one of it is served, and answers are as it says."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

from tests.export.demo_board import fill
from tests.export.small_board import small_board
from tests.restart.station import station
from tests.told import made, told
from vllm_watch.export.status import Status

ROOT = Path(__file__).parents[2]
DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())


def check(schema: dict[str, Any], value: object) -> None:
    whole = schema | {"components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


async def test_every_route_is_in_the_document_and_vice_versa(tmp_path: Path) -> None:
    async with station(tmp_path) as one:
        served = {
            (re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.path), route.method.lower())
            for route in one.server.routes
        }
    told = {(path, method) for path, each in DOCUMENT["paths"].items() for method in each}
    assert told == served


def test_the_document_is_whole() -> None:
    """Each schema that is named exists and is one; each parameter of a path is declared."""
    schemas = DOCUMENT["components"]["schemas"]
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)):
        assert name in schemas
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            declared = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}  # fmt: skip
            assert declared == set(re.findall(r"\{(\w+)\}", path))
            assert operation["summary"]


def test_a_full_board_is_shown_as_the_document_says() -> None:
    board = small_board()
    fill(board, extra=3, now=1_763_700_000.0, back_seconds=60)
    board.tell(made(told(id="one"), told("resolved", id="one"), told(id="two")))
    status = Status(board)
    check(named("Status"), json.loads(status.whole(None)))
    check(named("Incidents"), json.loads(status.incidents()))
    for name in board.targets:
        check(named("History"), json.loads(status.history(name, None) or ""))
