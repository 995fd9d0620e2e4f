"""Check that the server's port is free."""

from collections.abc import Iterator

from vllm_watch.preflight.command import is_whole
from vllm_watch.preflight.facts import Facts, Listener
from vllm_watch.preflight.findings import OK, PROBLEM, UNKNOWN, Finding, Fix

DEFAULT_PORT = 8000
_PORT_MAX = 65535
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


def port_of(text: str | None) -> int | None:
    """Return the requested port, or None if invalid."""
    if text is None:
        return DEFAULT_PORT
    return int(text) if is_whole(text) and 0 < int(text) <= _PORT_MAX else None


def check_port(facts: Facts) -> Iterator[Finding]:
    """Check that the port is free, or name its holder."""
    command = facts.command
    if command.switch("headless") or command.text("uds"):
        return
    port = port_of(command.text("port"))
    if port is None:
        yield Finding("port", PROBLEM, f"--port {command.text('port')} is not a port from 1 to {_PORT_MAX}", "wrong_flag", (Fix("use vLLM's default", command.shown(port=str(DEFAULT_PORT))),))  # fmt: skip
    elif facts.listeners is None:
        yield Finding("port", UNKNOWN, f"who listens on port {port} cannot be read from /proc/net")
    elif in_the_way := [each for each in facts.listeners if _collides(each, facts, port)]:
        yield _taken(facts, in_the_way[0])
    else:
        yield Finding("port", OK, f"port {port} is free")


def _taken(facts: Facts, listener: Listener) -> Finding:
    who = "a process that is not visible here"
    fixes = []
    if facts.free_port is not None:
        fixes.append(Fix("use a free port", facts.command.shown(port=str(facts.free_port))))  # fmt: skip
    if listener.pid is not None:
        who = f"process {listener.pid} ({listener.command or 'name unknown'})"
        fixes.append(
            Fix("end the process that has it, if it is not needed", f"kill {listener.pid}")
        )
    text = f"port {listener.port} is taken: {who} listens on {_address(listener)}"
    if listener.command and "vllm" in listener.command:
        text += "; a second vLLM may start all the same and get every other request"
    return Finding("port", PROBLEM, text, "port_in_use", tuple(fixes))


def _collides(listener: Listener, facts: Facts, port: int) -> bool:
    # Listeners on different addresses can share a port.
    host = facts.command.text("host")
    everywhere = host in (None, "", *_EVERYWHERE)
    named = {"localhost": "127.0.0.1"}.get(host or "", host)
    return listener.port == port and (everywhere or listener.address in (named, *_EVERYWHERE))


def _address(listener: Listener) -> str:
    inside = f"[{listener.address}]" if ":" in listener.address else listener.address
    return f"{inside}:{listener.port}"
