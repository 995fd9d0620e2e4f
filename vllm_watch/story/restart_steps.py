"""Texts about restart steps."""

from dataclasses import dataclass

RUNBOOK = "restart.md"


@dataclass(frozen=True, slots=True)
class Step:
    """Texts of one restart step."""

    says: str
    first_step: str
    ended: str = ""


STEPS = {
    "dry_run": Step("is not restarted (dry run)", "Follow its alert, if there is one. In mode auto vllm-watch would restart it now; in mode observe it never does.",
                    "advised and left to you (mode observe)"),
    "approval": Step("waits for approval of its restart", "Check it, then approve the restart on the status page or with vllm-watch "
                     "approve INCIDENT (vllm-watch silence refuses it)."),
    "refused": Step("is not restarted", "See the status page for every gate that refuses the restart."),
    "breaker": Step("is not restarted automatically any more",
                    "See how the last attempt ended (vllm-watch journal); vllm-watch resume allows another one."),
    "begun": Step("is being restarted", "Nothing to do yet: its result will be reported."),
    "helped": Step("was restarted, and it helped", "Nothing to do.", "helped"),
    "did_not_help": Step("was restarted, and it did not help",
                         "Do not restart it again: read the evidence that the attempt kept (vllm-watch journal).", "did not help"),
    "failed": Step("could not be restarted", "Run vllm-watch hook test NAME to see why the hook failed.", "failed"),
    "uncertain": Step("may or may not have been restarted", "Check whether the server was restarted and whether anything was left "
                      "half done, then run vllm-watch resume.", "may not have happened"),
    "cancelled": Step("was not restarted after all", "Nothing to do: the hook was not called.",
                      "was given up before anything was done"),
}  # fmt: skip


def step_of(name: str) -> Step:
    """Return the step's texts. An unknown step has only its name."""
    words = name.replace("_", " ")
    return STEPS.get(name) or Step(words, "See the status page.", words)
