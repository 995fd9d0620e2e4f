"""Whether anything would start a target's server again, for the hooks that only end it."""

from pathlib import Path

from vllm_watch.errors import HookError
from vllm_watch.restart.hooks import base, server_process, supervisor
from vllm_watch.restart.hooks.server_process import Server


async def refusal(tools: base.Tools, call: base.HookCall) -> str | None:
    """Say why ending the server would leave it dead, or None."""
    found = await finding(tools, call)
    return None if found.ok else found.text


async def finding(
    tools: base.Tools, call: base.HookCall, *, port: int | None = None, pid_file: Path | None = None
) -> base.Finding:
    """Find the target's server and who looks after it."""
    try:
        server = await server_process.find(tools, call, port=port, pid_file=pid_file)
    except HookError as error:
        return base.Finding(ok=False, text=error.cause, remedy=error.remedy)
    return await of_server(tools, server, "")


async def of_server(tools: base.Tools, server: Server, supervised_by: str) -> base.Finding:
    """Say who looks after the server; what the operator says in words counts."""
    if supervised_by:
        text = f"{supervised_by} starts it again: supervised_by says so, it was not seen"
        return base.Finding(ok=True, text=text)
    found = await supervisor.of(tools, server)
    if found.relaunches:
        return base.Finding(ok=True, text=found.text)
    return base.Finding(
        ok=False, text=f"nothing is known to start it again: {found.text}", remedy=found.remedy
    )
