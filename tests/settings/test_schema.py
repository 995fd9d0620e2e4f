"""The JSON schema of the configuration accepts every file that we ship, and names a key that does not exist."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from docs.generate_configuration import EXAMPLE
from vllm_watch.__main__ import main

ROOT = Path(__file__).parents[2]
SHIPPED = [
    ROOT / "deploy/systemd/vllm-watch.yaml",
    ROOT / "deploy/compose/vllm-watch.yaml",
    *sorted((ROOT / "deploy/kubernetes").glob("*/config.yaml")),
]
REFUSED = {
    "unknown_key": "'scrap' was unexpected",
    "negative_interval": "exclusiveMinimum",
    "target_without_url": "'url' is a required property",
    "targets_is_a_mapping": "is not of type 'array'",
    "size_with_wrong_unit": "is not valid under any of the given schemas",
    "log_level": "is not one of",
}


@pytest.fixture
def schema(capsys):
    assert main(["check-config", "--schema"]) == 0
    return jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.parent.name)
def test_what_we_ship_is_valid(schema, file):
    assert list(schema.iter_errors(yaml.safe_load(file.read_text()))) == []


def test_the_example_of_the_reference_is_valid(schema):
    assert list(schema.iter_errors(yaml.safe_load(EXAMPLE))) == []
    assert list(schema.iter_errors({"scrape": None, "recorder": {"bytes_max": "16 MiB"}})) == []


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_is_refused(schema, name):
    document = yaml.safe_load((ROOT / f"tests/config/{name}.yaml").read_text())
    errors = [f"{error.validator}: {error.message}" for error in schema.iter_errors(document)]
    assert any(REFUSED[name] in error for error in errors), errors


def test_a_file_is_needed_without_it(capsys):
    assert main(["check-config"]) == 2
    assert "name the configuration, or use --schema" in capsys.readouterr().err
