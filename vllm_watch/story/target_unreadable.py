"""Texts about targets that cannot be scraped."""

from vllm_watch.story.base import Story

STORY = Story(
    title="Unreadable",
    says="cannot be read",
    about="The watcher cannot read a target's metrics.",
    cost="Unknown: users may be served.",
    is_not="proof that users are not served",
    first_step="Run curl URL/metrics on the watcher's host; users may be served all the same.",
    severities=("ticket",),
    runbook="alerts.md#vllmwatchtargetunreadable",
    detected=False,
)
