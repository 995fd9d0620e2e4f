"""Texts about broken GPUs."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="GPU fault",
    says="has a GPU fault",
    about="A GPU is broken, or its driver reports so.",
    cost="Engines that use this GPU may fail.",
    warning="no critical incident is known to follow from it",
    is_not="throttling, an old error, or a driver that hangs",
    first_step="Follow the evidence's advice for this GPU before you restart anything on it.",
    restart="No restart is advised: restarting the engine does not repair a GPU.",
    causes={
        "gpu_lost": Cause(
            "GPU lost", "the driver has lost a GPU",
            first_step="Reboot the host; check the GPU's seating, power and risers.",
        ),
        "xid": Cause(
            "Xid error", "the driver reports an error that needs attention",
            first_step="Follow the evidence's advice for this code; dmesg -T | grep -i nvrm has the details.",
            restart="No restart is advised: no server is down with this error, or the GPU needs more than a restart.",
        ),
        "ecc": Cause(
            "memory errors", "GPU memory has errors that could not be corrected",
            first_step="Drain the engine and reset the GPU; have it replaced if the errors come back.",
        ),
    },
    severities=("page", "ticket", "info"),
    of_gpus=True,
)  # fmt: skip
