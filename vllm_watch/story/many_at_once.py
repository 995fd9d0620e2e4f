"""Texts about targets that stop answering together."""

from vllm_watch.story.base import Cause, Story

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
