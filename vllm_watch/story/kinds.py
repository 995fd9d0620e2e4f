"""All kinds of incidents, and the incident of many targets at once."""

from collections.abc import Mapping
from dataclasses import replace

from vllm_watch.samples.target import WATCHER
from vllm_watch.story.base import Cause, Story
from vllm_watch.support import plugins

MANY_AT_ONCE = Story(
    title="Many targets at once",
    says="lost most of its targets at once",
    about="Most targets of one watcher fell silent within a minute, most likely because of a shared cause, such as the "
    "watcher's own host or network.",
    cost="Unknown: users may be served.",
    is_not="a separate failure of each engine",
    first_step="Query one of the targets from another host: if it answers, the fault is on the watcher's side.",
    restart="Do not restart them: it may be the watcher's own host or network.",
    causes={"unreachable": Cause("unreachable", "it cannot be reached")},
    severities=("page",),
    runbook="detectors/engine_down.md#many-at-once",
)


def _found() -> dict[str, Story]:
    modules = plugins.modules("vllm_watch.story", "STORY")
    stories = {kind: module.STORY for kind, module in modules.items()}
    return {
        kind: replace(story, runbook=story.runbook or f"detectors/{kind}.md")
        for kind, story in stories.items()
    }


STORIES: Mapping[str, Story] = _found()

KINDS = tuple(kind for kind, story in STORIES.items() if story.detected)


def story_of(kind: str, target: str = "") -> Story:
    """Return the kind's story. The story of an unknown kind has only a name."""
    if target == WATCHER:
        return MANY_AT_ONCE
    words = kind.replace("_", " ")
    return STORIES.get(kind) or Story(
        title=words[:1].upper() + words[1:], says=f"has an incident ({words})", about="", is_not="", cost="Unknown.",
        first_step="Read its evidence on the status page before you restart anything.", runbook=f"detectors/{kind}.md",
    )  # fmt: skip
