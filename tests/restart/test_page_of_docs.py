"""docs/restart.md: its configurations are valid, each on top of those before, and it names every gate.

And the table of unsafe control actions in docs/restart-safety.md: each action has each kind, each row a test that is there.
"""

import re
from itertools import product
from pathlib import Path

import yaml

from tests.faults.matrix import Row, missing
from tests.restart import hazards
from tests.restart.hazards import HAZARDS, KINDS
from vllm_watch.config import Config
from vllm_watch.restart import guard
from vllm_watch.settings.stages import RIGHTS

PAGE = (Path(__file__).parents[2] / "docs/restart.md").read_text()


def merged(below, above):
    return {**below, **{
        key: merged(below[key], value) if isinstance(value, dict) and key in below else value
        for key, value in above.items()
    }}  # fmt: skip


def test_each_step_is_a_configuration():
    """The four steps and the freezes can be used as they stand."""
    whole, modes = {}, []
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        document = yaml.safe_load(block)
        if "receivers" in document:
            continue  # Alertmanager's
        whole = merged(whole, document)
        modes.append(Config.model_validate(whole, context={"folder": Path("/")}).restart.mode)
    assert modes == ["observe", "approve", "auto", "auto", "auto"]


def test_every_gate_is_explained():
    table = PAGE.partition("## Why not now?")[2].partition("##")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert told == [slug for slug in guard.CHECK_NAMES if slug != "approval"]


def test_every_right_is_explained():
    assert all(f"`{right}`" in PAGE or f"[{right}]" in PAGE for right in RIGHTS)


ACTIONS = ("restart", "drain", "pause", "reclaim", "page")


def test_each_action_has_each_kind():
    assert [(each.action, each.kind) for each in HAZARDS] == [*product(ACTIONS, KINDS)]


def test_every_test_that_is_named_is_there():
    assert all(each.tests for each in HAZARDS)
    rows = (Row("", "", "", "", "", "", each.tests) for each in HAZARDS)
    assert [each for row in rows for each in missing(row)] == []


def test_the_page_is_in_step():
    """make generate renews it; no cell breaks the table."""
    assert hazards.PAGE.read_text() == hazards.written(hazards.PAGE.read_text())
    assert not any("|" in text for each in HAZARDS for text in (each.unsafe, each.prevented))
