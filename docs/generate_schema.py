"""Writes the JSON schema of the configuration from the models, for editors and for CI of other repositories."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generate_configuration import told
from generated import write_or_check
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from vllm_watch.config import Config

SCHEMA = Path(__file__).parents[1] / "vllm_watch/settings/vllm-watch.schema.json"

BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""Pydantic leaves a bound of a field with a validator before it as it is written."""


def schema() -> dict[str, Any]:
    """Return the schema: every key with its description, no unknown key allowed; an empty section is null."""
    models = list(dict.fromkeys(_models(Config)))
    references, found = models_json_schema([(model, "validation") for model in models])
    definitions = found["$defs"]
    for model in models:
        _, _, name = references[model, "validation"]["$ref"].rpartition("/")
        definition = definitions[name]
        texts: dict[str, dict[str, str]] = {}
        with suppress(OSError):  # create_model made it: it has no source, and sections only
            texts = told(model)
        definition["description"] = " ".join(str(model.__doc__).split())
        for key, each in definition.get("properties", {}).items():
            _describe(each, texts.get(key, {}).get("", ""))
            if "$ref" in each:  # a section: if every line below it is commented out, it is null
                definitions[each["$ref"].rpartition("/")[2]]["type"] = ["object", "null"]
    for each in _objects(definitions):
        for written, keyword in BOUNDS.items():
            if written in each:
                each[keyword] = each.pop(written)
    top = definitions.pop("Config")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of vllm-watch",
        **{key: value for key, value in top.items() if key != "title"},
        "$defs": definitions,
    }


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for inner in _within(field.annotation):
            yield from _models(inner)


def _within(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _within(argument)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in (
        list(value.values())
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    ):
        yield from _objects(each)


def _describe(each: dict[str, Any], description: str) -> None:
    each.pop("title", None)
    if isinstance(each.get("default"), dict):
        del each["default"]  # a section's own keys have their defaults
    if description:
        each["description"] = description


if __name__ == "__main__":
    sys.exit(write_or_check({SCHEMA: json.dumps(schema(), indent=1) + "\n"}))
