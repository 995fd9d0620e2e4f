"""Every kind of incident that is found has its words, its page and its test, and every cause too; what is missing is named."""

import ast
import re
from pathlib import Path

import pytest

from vllm_watch.detectors.needs import needs_of_all
from vllm_watch.settings.notifications import Step
from vllm_watch.story.base import CURES, STEPS, step_of
from vllm_watch.story.kinds import KINDS, STORIES, story_of

ROOT = Path(__file__).parents[1]
DETECTORS = tuple(needs_of_all())
JUDGES = sorted(
    file for name in ("detectors", "signals/holders") for file in (ROOT / "vllm_watch" / name).glob("*.py")
)  # fmt: skip
EVERY = [(kind, cause) for kind, story in STORIES.items() for cause in (*story.causes, "unknown")]
SENTENCE = re.compile(r"[A-Z][^\n]*[^.]\.")


def test_every_detector_has_its_words_its_page_and_its_test() -> None:
    """A new one needs these files and no other."""
    wanted = [f"vllm_watch/story/{slug}.py" for slug in DETECTORS if slug not in KINDS]
    files = ("docs/detectors/{}.md", "tests/detectors/test_{}.py")
    wanted += [name for slug in DETECTORS for file in files if not (ROOT / (name := file.format(slug))).exists()]  # fmt: skip
    assert wanted == [], "missing"


def test_every_kind_that_has_words_is_found_by_a_detector() -> None:
    """What no detector finds any more is told by nobody."""
    assert [kind for kind in KINDS if kind not in DETECTORS] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_every_cause(kind: str) -> None:
    """And none that there is not; `unknown` where the kind has words of its own for it."""
    page = (ROOT / f"docs/detectors/{kind}.md").read_text()
    assert page.startswith(f"# {kind}\n")
    told = page.partition("\n## ")[0] + page.partition("# What it sees")[2].partition("\n##")[0]
    causes = set(re.findall(r"^\|? ?`(\w+)` \|", told, re.MULTILINE))
    causes |= set(re.findall(r"[Cc]ause `(\w+)`", told))
    assert causes == set(STORIES[kind].causes)


@pytest.mark.parametrize(("kind", "cause"), EVERY)
def test_every_cause_says_what_to_do_and_whether_a_restart_helps(kind: str, cause: str) -> None:
    story = STORIES[kind]
    step, outcome = story.first_step_of(cause), story.restart_of(cause, advised=False)
    assert SENTENCE.fullmatch(step)
    assert len(step) <= 200
    assert SENTENCE.fullmatch(outcome)
    assert outcome != CURES
    assert story.restart_of(cause, advised=True) == CURES
    assert re.match(r"(is|has|uses|cannot|lost) ", story.says_of(cause))


@pytest.mark.parametrize("file", JUDGES, ids=lambda file: file.stem)
def test_a_cause_that_is_given_has_words(file: Path) -> None:
    """Those that are written out where a verdict is made; tests/detectors/conftest.py hears the others."""
    tree = ast.parse(file.read_text())
    given = [
        word.value
        for word in ast.walk(tree)
        if isinstance(word, ast.keyword) and word.arg == "cause"
    ]
    causes = {
        each.value for value in given for each in ast.walk(value) if isinstance(each, ast.Constant)
    }
    told = {cause for story in STORIES.values() for cause in story.causes}
    assert causes - told - {"unknown"} == set()


def test_a_cause_that_has_words_is_given() -> None:
    """Words for what no detector says any more are in the way."""
    said = {
        each.value
        for file in JUDGES
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Constant)
    }
    assert {cause for kind in KINDS for cause in STORIES[kind].causes} - said == set()


def test_of_an_unknown_kind_no_more_is_said_than_its_name() -> None:
    """A later watcher's incident, or one that was kept from an earlier one."""
    story = story_of("new_kind")
    assert story.title_of("odd_cause") == "New kind: odd cause"
    assert story.says_of("unknown") == "has an incident (new kind): cause unknown"
    assert "before you restart" in story.first_step_of("odd_cause")
    assert (
        story.restart_of("odd_cause", advised=False) == "It is not known whether a restart helps."
    )


STALLED = STORIES["engine_stalled"]


def test_the_first_step_says_what_is_known_of_the_restart() -> None:
    """To restart where that is advised, not a word of it where it is not; an alert rule says how to know."""
    for story in STORIES.values():
        for cause in story.causes:
            for advised in (True, False):
                assert "if the status page advises it" not in story.first_step_of(
                    cause, advised=advised
                )
    slow = STORIES["throughput_collapse"].first_step_of("slow_engine", advised=True)
    assert slow.endswith("Link Width); if you find none, restart vLLM.")
    assert STALLED.first_step_of("hang").endswith("; restart vLLM if the status page advises it.")
    assert STALLED.first_step_of("hang", advised=True).endswith("); then restart vLLM.")
    assert STALLED.first_step_of("hang", advised=False).endswith("EngineCore).")


def test_how_long_it_must_last_until_a_restart_is_advised() -> None:
    """Said while that is what it waits for; afterwards the restart is advised."""
    waits = STALLED.restart_of("hang", advised=False, after_s=60.0)
    assert waits == "A restart is advised only after 60 s: it may recover by itself."
    assert STALLED.restart_of("hang", advised=True, after_s=60.0) == CURES
    for cause in ("peer_wait", "rank_wait"):  # which a restart does not help, however long it lasts
        said = STALLED.restart_of(cause, advised=False, after_s=60.0)
        assert said.startswith("A restart does not help")


@pytest.mark.parametrize(("kind", "cause", "known", "said"), [
    ("engine_stalled", "hang", "API server (PID 10): waits; VLLM::EngineCore_DP1 (PID 20): waits.", "(py-spy dump --pid 20)"),
    ("engine_down", "api_hang", "API server (PID 10): waits for a lock.", "(py-spy dump --pid 10)"),
    ("engine_stalled", "stopped", "API server (PID 10): waits; its engine core is VLLM::EngineCore (PID 20)\nVLLM::Worker_TP1 (PID 22) is stopped", "(kill -CONT with 22)"),
    ("stale_vram", "orphaned_worker", "GPU 0: process 7: x. Do: end it: vllm-watch gpus --reclaim 7, or kill 7", "gpus --reclaim 7:"),
    ("engine_stalled", "hang", "no scheduler step for 44 s", "(py-spy dump --pid PID, found with pgrep -af VLLM::EngineCore)"),
])  # fmt: skip
def test_the_first_step_names_the_process_where_it_is_known(
    kind: str, cause: str, known: str, said: str
) -> None:
    """By the PID of the stacks or the evidence; else by a command that finds it, and no wrong one."""
    assert said in STORIES[kind].first_step_of(cause, known=("", known))


def test_every_step_of_a_restart_has_its_words() -> None:
    """Those that may be told, and of those that end it how it ended."""
    assert set(STEPS) == set(Step.__args__)
    ends = {"dry_run", "helped", "did_not_help", "failed", "uncertain", "cancelled"}
    assert {name for name, step in STEPS.items() if step.ended} == ends
    assert (step_of("odd_end").says, step_of("odd_end").ended) == ("odd end", "odd end")
