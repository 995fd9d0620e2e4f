"""Whether anything would start a target's server again, for a command that only ends it."""

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, server_process, supervisor


async def refusal(tools: base.Tools, call: base.HookCall) -> str | None:
    """Say why ending the server would leave it dead, or None."""
    found = await finding(tools, call)
    return None if found.ok else found.text


async def finding(tools: base.Tools, call: base.HookCall) -> base.Finding:
    """Find the target's server and who looks after it."""
    try:
        server = await server_process.find(tools, call)
    except HookError as error:
        return base.Finding(ok=False, text=error.cause, remedy=error.remedy)
    found = await supervisor.of(tools, server)
    if found.relaunches:
        return base.Finding(ok=True, text=found.text)
    return base.Finding(
        ok=False, text=f"nothing is known to start it again: {found.text}", remedy=found.remedy
    )
