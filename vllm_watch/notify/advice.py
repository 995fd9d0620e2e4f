"""What to do, in a sentence, and where to read on: incidents have their own first steps, restarts theirs here."""

from vllm_watch.incidents.first_steps import first_step

RUNBOOKS = {
    "target_unreadable": "alerts.md#vllmwatchtargetunreadable",
    "restart": "restart.md",
}
"""Pages of docs/; every other kind has docs/detectors/KIND.md."""

_OF_STEP = {
    "dry_run": "Nothing to do: this is what mode auto would have done.",
    "approval": "Look at it, then say yes on the status page, or vllm-watch approve INCIDENT (vllm-watch silence to refuse).",
    "refused": "The status page says all that is against it.",
    "breaker": "Read how the last attempt ended (vllm-watch journal); vllm-watch resume lets it try again.",
    "begun": "Nothing to do: how it ends is told.",
    "helped": "Nothing to do.",
    "did_not_help": "A restart is not the cure: read the evidence that it kept (vllm-watch journal).",
    "failed": "The hook did not do what it should: vllm-watch hook test NAME says why.",
    "uncertain": "See whether the server was restarted, and whether anything is left half done; then vllm-watch resume.",
    "cancelled": "Nothing to do: the hook was not called.",
}  # fmt: skip


def what_to_do(kind: str, cause: str) -> str:
    """Return the advice; empty where there is none."""
    if kind == "restart":
        return _OF_STEP.get(cause, "")
    return first_step(kind, cause)


def runbook(kind: str, base_url: str | None) -> str:
    """Return where the runbook is: a link where the pages are served, else the path in the repository."""
    page = RUNBOOKS.get(kind, f"detectors/{kind}.md")
    return f"docs/{page}" if base_url is None else f"{base_url.rstrip('/')}/{page}"
