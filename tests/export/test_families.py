"""The table of exported metrics: its rules, and that the documentation is made from it."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from tests.for_each import for_each
from vllm_watch.export.engine_families import ENGINE_FAMILIES
from vllm_watch.export.families import FAMILIES
from vllm_watch.signals.records import EngineSignals
from vllm_watch.signals.state import STATES

ROOT = Path(__file__).parents[2]


def test_names_are_unique():
    """Two rows of one name would be two families of one name, which Prometheus refuses."""
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))


@for_each({family.name: family for family in FAMILIES})
def test_row_keeps_the_rules(family):
    """Our prefix, no colon, the suffix of its type, a sentence of help on one line, no label twice."""
    assert family.name.startswith("vllm_watch_")
    assert ":" not in family.name
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.name.endswith("_info") == (family.kind == "info")
    assert family.help.endswith(".")
    assert "\n" not in family.help_text
    assert "\\" not in family.help_text
    assert len(set(family.all_labels)) == len(family.all_labels)


def test_every_signal_is_exported():
    """A field added to EngineSignals needs a row here, under its own name."""
    elsewhere = {"engine", "model_name", "state_text", "totals", "sleep_level"}
    wanted = {
        "vllm_watch_engine_" + field.name
        for field in fields(EngineSignals)
        if field.name not in elsewhere
    }
    wanted = {name.replace("_engine_restarts", "_engine_restarts_total") for name in wanted}
    assert {family.name for family in ENGINE_FAMILIES} == wanted | {
        "vllm_watch_engine_health_ratio"
    }


HEALTH = {
    "serves": ("serving", None, 1), "serves, and its ratio wanders": ("serving", 0.8, 1), "does nothing": ("idle", None, 1),
    "a long prompt": ("prefilling", None, 1), "a queue is load, not health": ("overloaded", None, 1),
    "does a third": ("collapsed", 0.33, 0.33), "collapsed, nobody knows how far": ("collapsed", None, None),
    "collapsed to more than it was": ("collapsed", 1.2, 1), "fails what it is asked": ("failing", 1.0, 0),
    "stands still": ("stalled", 1.0, 0), "gone": ("down", None, 0), "loads its weights": ("starting", None, 0),
    "asleep on purpose": ("sleeping", None, 0), "not seen": ("unknown", 1.0, None), "no word of ours": ("melting", 1.0, None),
}  # fmt: skip


@for_each(HEALTH)
def test_what_routers_are_told(case):
    """Every state has its number, and what is not known has none."""
    state, ratio, health = case
    family = next(f for f in ENGINE_FAMILIES if f.name == "vllm_watch_engine_health_ratio")
    assert family.value(EngineSignals(engine="0", state=state, throughput_ratio=ratio)) == health


def test_routers_are_told_of_every_state():
    assert {state for state, _, _ in HEALTH.values()} == {*STATES, "melting"}


def test_command_prints_the_page_and_refuses_anything_else():
    """The page is fresh; if not: python -m vllm_watch.export.families --markdown > docs/metrics.md"""
    command = [sys.executable, "-m", "vllm_watch.export.families"]
    printed = subprocess.run(
        [*command, "--markdown"], cwd=ROOT, capture_output=True, timeout=600, check=True
    )
    assert printed.stdout.decode() == (ROOT / "docs" / "metrics.md").read_text()
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"usage: ")
