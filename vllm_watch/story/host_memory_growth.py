"""Texts about growing host memory."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="Host memory grows",
    says="uses ever more host memory",
    about="The API server's process takes ever more host memory and does not level off: no emergency yet.",
    cost="Users notice nothing yet; at its memory limit the process is killed.",
    warning="users notice nothing until the memory of the host is used up",
    is_not="GPU memory, a cache that fills up, or clients that wait",
    first_step="Compare its growth with the container's memory limit, and plan a restart before it reaches the limit.",
    restart="No restart is advised yet: it has not grown enough (see the evidence).",
    causes={"leak": Cause("leak", "it grows steadily and does not level off")},
    severities=("ticket",),
)
