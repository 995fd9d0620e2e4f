"""Send requests to a daemon and print the results."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from vllm_watch.cli.helpers import connection, exit_status
from vllm_watch.cli.helpers.connection import TOKEN_VARIABLE, Connection
from vllm_watch.clients import http_answer
from vllm_watch.errors import WatchError
from vllm_watch.support import json_text
from vllm_watch.support.visible import visible_lines

TIMEOUT_SECONDS = 45.0
"""Timeout of a request. The daemon may take 30 s to answer."""

_REFUSED = 409
_ANSWER_BYTES_MAX = 4 << 20

EXIT = """
exit status: 0 done, 1 refused (with the reason), 2 wrong usage, or no answer from the daemon"""


def add_daemon(parser: argparse.ArgumentParser, path: str, *body: str) -> None:
    """Add the arguments, and the request: its path, and the arguments that its body holds."""
    parser.set_defaults(path=path, body=body)
    connection.add_daemon(parser)
    add = parser.add_argument
    add("--token-file", metavar="FILE", type=Path,
        help=f"file with your token, one of api.tokens (default: {TOKEN_VARIABLE})")  # fmt: skip
    add("--json", action="store_true", help="print the daemon's answer as JSON")


def ask(arguments: argparse.Namespace) -> int:
    """Post the request, print the result and return the exit status. Raises WatchError without a usable answer."""
    daemon = connection.of(arguments)
    token_file = arguments.token_file or connection.named_path(TOKEN_VARIABLE)
    if token_file is None:
        remedy = f"set --token-file or {TOKEN_VARIABLE} to the file that holds yours"
        raise WatchError("a token is required", remedy)
    token = connection.secret_of("--token-file", token_file)
    given = vars(arguments)
    quoted = {name: quote(str(value), safe="") for name, value in given.items()}
    url = f"{daemon.url}/api/v1/{arguments.path.format_map(quoted)}"
    said = {name: given[name] for name in arguments.body if given[name] is not None}
    status, answer = asyncio.run(_post(daemon, url, token, said))
    if status not in (200, 202, _REFUSED):
        cause = answer.get("error") or f"{daemon.url} answers with HTTP status {status}"
        raise WatchError(str(cause), str(answer.get("remedy") or "check the address"))
    refused = status == _REFUSED
    if arguments.json:
        print(json.dumps(answer))
    else:
        stream = sys.stderr if refused else sys.stdout
        print(visible_lines("\n".join(_lines(answer, refused=refused))), file=stream)
    return exit_status.FOUND if refused else exit_status.FINE


def _lines(answer: Mapping[str, Any], *, refused: bool) -> list[str]:
    if not refused:
        attempt = answer.get("attempt")
        more = f"attempt {attempt} has begun: " if attempt else ""
        return [more + str(answer.get("text", "done"))]
    lines = [f"refused: {answer.get('error')}"]
    gates = answer.get("gates")
    if isinstance(gates, list) and len(gates) > 1:
        named = [each for each in gates if isinstance(each, dict)]
        lines += [f"  {each.get('gate')}: {each.get('text')}" for each in named]
    return [*lines, f"  → {answer.get('remedy')}"]


async def _post(
    daemon: Connection, url: str, token: str, body: Mapping[str, Any]
) -> tuple[int, dict[str, Any]]:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(
                url, json=body, headers=headers, allow_redirects=False, ssl=daemon.tls()
            ) as response,
        ):
            text, status = await http_answer.body(response, _ANSWER_BYTES_MAX), response.status
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = http_answer.why_none(error, TIMEOUT_SECONDS)
        remedy = "start vllm-watch there, or give its address: --url http://HOST:9470"
        raise WatchError(f"no answer from {daemon.url}: {why}", remedy) from None
    try:
        answer = json_text.read(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        cause = f"{url} does not answer as vllm-watch does (HTTP status {status})"
        raise WatchError(cause, "check the address")
    return status, answer
