"""Texts about stale GPU memory."""

from vllm_watch.story.base import Cause, Story

_ASK = "Ask its owner before you end it: unsaved work is lost."

STORY = Story(
    title="Stale GPU memory",
    says="has stale GPU memory",
    about="GPU memory is held but not used: users notice nothing yet, but the next start of an engine may lack it.",
    cost="Users notice nothing yet; the next start of an engine may lack this memory.",
    warning="users notice nothing until an engine starts and lacks this memory",
    is_not="memory that a loading or idle vLLM has reserved",
    first_step="Run vllm-watch gpus: it lists the holders of the memory, with a command for each.",
    restart="Restarting vLLM does not free it: end the process that holds the memory.",
    causes={
        "orphaned_worker": Cause(
            "an orphaned worker", "a vLLM worker whose server is gone holds it",
            first_step="End it with vllm-watch gpus --reclaim PID: nothing can reach it, so nothing is lost.",
        ),
        "zombie_context": Cause(
            "a process that has ended or is stuck", "a process that is dead or stuck in the kernel holds it",
            first_step="If it is a zombie, end its parent process; if it is in state D or the memory stays, reset the GPU when it is idle, or reboot.",
            restart="Restarting vLLM does not free it: the process is dead already, or cannot be killed.",
        ),
        "idle_notebook": Cause("an idle notebook", "an unused notebook holds it", first_step=_ASK),
        "idle_process": Cause("an idle process", "a process that does nothing holds it", first_step=_ASK),
        "container_gone": Cause(
            "a process whose container is gone", "a process whose container was removed holds it",
            first_step="End it with vllm-watch gpus --reclaim PID: its container was removed without it.",
        ),
        "sleeping_engine": Cause(
            "an engine that sleeps", "a sleeping engine has not freed it",
            first_step="Wake the engine and put it to sleep again (level 1); if it keeps the memory, restart vLLM with --enable-sleep-mode.",
            restart="It sleeps on purpose: a restart would free the memory and wake it; you decide.",
        ),
        "unaccounted": Cause(
            "no visible process", "no visible process holds it",
            first_step="Run fuser -v /dev/nvidia* to see which processes have the GPU open; if none has, reset the GPU when it is idle, or reboot.",
            restart="Restarting vLLM does not free it: no visible process holds it.",
        ),
    },
    severities=("ticket",),
    of_gpus=True,
)  # fmt: skip
