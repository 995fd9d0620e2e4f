"""All kinds of incidents."""

from collections.abc import Mapping
from dataclasses import replace

from vllm_watch.samples.target import WATCHER
from vllm_watch.story.base import Story
from vllm_watch.story.many_at_once import MANY_AT_ONCE
from vllm_watch.support import plugins


def _found() -> dict[str, Story]:
    stories = {plugins.slug(m): m.STORY for m in plugins.modules("vllm_watch.story", ("STORY",))}
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
