"""Writes docs/api.md from docs/openapi.json: the same for people, so that the site's search finds it."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

FOLDER = Path(__file__).parent
PAGE = FOLDER / "api.md"
DOCUMENT = FOLDER / "openapi.json"
Schema = dict[str, Any]

HEAD = """\
# HTTP API

<!-- Made by docs/generate_api.py from docs/openapi.json. Do not edit. -->

Query and control vllm-watch. Records are in *italics*; [openapi.json](openapi.json) (OpenAPI 3.1) has their keys. Unknown values are
`null`; later versions only add keys. Errors have the body `{"error": …, "remedy": …}`, and a status of 4xx or 5xx.

Reading needs no token, only the credentials that [web_config](security.md#tls-and-passwords) requires. To change something, POST with
`Content-Type: application/json` and `Authorization: Bearer TOKEN` (one of [api.tokens](security.md#tokens)). If no tokens are
configured, these routes do not exist, except `/-/reload` from this host. Parameters with `?` are optional.

## Routes

"""
REFUSALS = 400  # and above: of those only what is special to a route is told


def text() -> str:
    """The whole page."""
    document = json.loads(DOCUMENT.read_text())
    routes = [
        route(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return HEAD + "".join(routes)


def route(path: str, method: str, operation: Schema) -> str:
    """One row: what is asked, what it means, what it takes, what comes back."""
    token = " **token**" if operation.get("security") == [{"token": []}] else ""
    parameters = operation.get("parameters", ())
    takes = [parameter(each) for each in parameters if each["in"] != "path"]
    body = operation.get("requestBody")
    takes += [kind(each) for each in contents(body)] if body else []
    takes = [each for each in takes if each != "*Nothing*"]
    answers = [
        kind(content)
        for status, answer in sorted(operation["responses"].items())
        if int(status) < REFUSALS
        for content in contents(answer)
    ]
    shown = ", ".join(dict.fromkeys(answers))
    takes_text = f" Takes {', '.join(takes)}." if takes else ""
    gives = f" → {shown}" if shown.startswith("*") else ""
    return f"- `{method.upper()} {path}`{token}: {operation['summary'].rstrip('.?')}.{takes_text}{gives}\n"


def parameter(each: Schema) -> str:
    """A parameter, and whether it may be left out."""
    return f"`{each['name']}{'' if each.get('required') else '?'}`"


def contents(holder: Schema) -> list[Schema]:
    """What a body or an answer is, each as a schema or as the name of a type."""
    return [
        content.get("schema", {}) if media == "application/json" else {"media": media}
        for media, content in holder.get("content", {}).items()
    ]


def kind(schema: Schema) -> str:
    """A type, as short as it can be said."""
    if "media" in schema:
        return f"`{schema['media']}`"
    if "$ref" in schema:
        return f"*{schema['$ref'].rpartition('/')[2]}*"
    if "anyOf" in schema:
        known = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(map(kind, known)).removesuffix("?") + "?"
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"`{json.dumps(value)}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"by name: {kind(schema['additionalProperties'])}"
    if "properties" in schema:
        inside = ", ".join(f"`{key}`: {kind(of)}" for key, of in schema["properties"].items())
        return f"({inside})"
    if isinstance(schema.get("type"), list):
        return f"{schema['type'][0]}?"
    return str(schema.get("type", "anything"))


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: text()}))
