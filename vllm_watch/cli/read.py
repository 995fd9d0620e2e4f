"""Show one /metrics body under vllm-watch's names."""

import argparse
import asyncio
import gzip
import io
import json
import math
import sys
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm_watch.cli.helpers import exit_status, options
from vllm_watch.config import load
from vllm_watch.errors import WatchError
from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.observation import Reading
from vllm_watch.settings.tls import TlsConfig
from vllm_watch.sources import host_servers, http, what_answered
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.reading import Reader
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import visible, visible_lines

HELP = """\
Reads one /metrics body, from a file, from a URL or from standard input (-), and prints its values
under the names that vllm-watch uses. A field that this vLLM does not export is null: unknown, not zero. Without a
source it reads this host's vLLM servers, one after another.

examples:
  vllm-watch read
  vllm-watch read http://127.0.0.1:8000
  vllm-watch read https://10.0.0.7:8000 --ca-file authority.pem --server-name llm.example.org
  curl -s http://127.0.0.1:8000/metrics | vllm-watch read - --json

exit status: 0 vLLM's metrics, 1 something else answered (its kind is shown), 2 no answer, or wrong usage"""

_BODY_BYTES_MAX = 64 << 20
_HERE = ("localhost", "127.0.0.1", "::1")
_NOT_FIELDS = frozenset(("engine", "model_name", "created_time"))
FIELD_NAMES = tuple(f.name for f in fields(EngineSample) if f.name not in _NOT_FIELDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="FILE|URL", nargs="?", help="a file, '-', or a vLLM server's URL (default: this host's servers)"
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object, every field present")
    parser.add_argument("--api-key-file", metavar="FILE", type=Path, help="file with the API key, if /metrics requires one")  # fmt: skip
    options.add_engine_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.source is not None:
        return _read(arguments.source, arguments)
    found = asyncio.run(host_servers.servers(ProcessListing(), Path("/proc")))
    if found is None:
        raise WatchError("the processes of this host cannot be listed", "name a URL")
    if not found:
        raise WatchError(host_servers.NONE_FOUND, "start vLLM, or name its URL")
    worst = exit_status.FINE
    for server in found:
        if not arguments.json:
            print(visible(f"{server.url}  {server.model}".rstrip()))
        try:
            status = _read(server.url, arguments)
        except WatchError as error:
            print(f"vllm-watch: {visible_lines(redacted(error.cause))}", file=sys.stderr)
            status = exit_status.WRONG_USAGE
        worst = max(worst, status)
    return worst


def _read(source: str, arguments: argparse.Namespace) -> int:
    is_url = source.startswith(("http://", "https://"))
    is_url = is_url or (":" in source and not Path(source).exists())
    reading = _of_server(source, arguments) if is_url else _of_file(source)
    if arguments.json:
        print(json.dumps(reading_to_json(reading)))
    else:
        print(visible_lines("\n".join(_lines(reading))))
    return exit_status.FINE if reading.vllm else exit_status.FOUND


def _of_server(url: str, arguments: argparse.Namespace) -> Reading:
    tls = options.engine_tls(arguments)
    config = load(None, environ={}, targets=[url], targets_from="URL", tls=tls)
    url, key = config.targets[0].url, arguments.api_key_file
    answer = asyncio.run(_fetch(url, config.scrape.tls_config, key))
    if answer.call.outcome != "ok":
        if answer.call.status is not None:
            return Reading(vllm=False, why_not=answer.call.error)
        cause = f"{url}/metrics cannot be read: {answer.call.error}"
        raise WatchError(cause, "check the URL, and that vLLM has finished loading")
    try:
        openmetrics = "openmetrics-text" in answer.content_type
        return Reader().read(_text(answer.body, url), openmetrics=openmetrics)
    except WatchError as error:
        why_not = what_answered.page(answer.content_type, answer.body) or error.cause
        return Reading(vllm=False, why_not=why_not)


def reading_to_json(reading: Reading) -> dict[str, Any]:
    """Convert a reading to JSON, with null for NaN and infinities."""
    return {
        "vllm": reading.vllm,
        "why_not": reading.why_not,
        "engine_kind": reading.engine_kind,
        "engines": {
            engine.engine: {name: plain(getattr(engine, name)) for name in FIELD_NAMES}
            for engine in reading.engines
        },
        "unknown_families": list(reading.unknown_families),
    }


def plain(value: Any) -> Any:
    """Convert a record or a value to JSON, with null for NaN and infinities."""
    if isinstance(value, Histogram):
        return {"count": plain(value.count), "sum": plain(value.sum)}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


async def _fetch(url: str, tls: TlsConfig, key: Path | None) -> http.Answer:
    limits = http.Limits(5.0, 15.0, _BODY_BYTES_MAX, tls)
    headers = {"Accept": what_answered.ACCEPT_TEXT}
    async with http.Session() as session:
        answer = await what_answered.ask(session, f"{url}/metrics", limits, headers, key)
        if answer.call.outcome == "refused" and urlsplit(url).hostname in _HERE:
            beside = host_servers.Neighbours(ProcessListing(), Path("/proc"))
            answer.call = await beside.explain(answer.call, url)
    return answer


def _of_file(name: str) -> Reading:
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(_BODY_BYTES_MAX + 1)
        else:
            with regular_file.opened(Path(name), pipes=True) as file:
                raw = file.read(_BODY_BYTES_MAX + 1)
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(_BODY_BYTES_MAX + 1)
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror or error}"
        raise WatchError(cause, "name a file or a URL") from None
    except (EOFError, zlib.error):
        raise WatchError(f"{name} is damaged gzip", "fetch it again") from None
    if len(raw) > _BODY_BYTES_MAX:
        cause = f"{name} is longer than {_BODY_BYTES_MAX >> 20} MiB"
        raise WatchError(cause, "give one body of /metrics")
    body = _text(raw, name)
    return Reader().read(body, openmetrics=body.rstrip().endswith("# EOF"))


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        cause = f"{where} is not text: byte {error.start} is not UTF-8"
        raise WatchError(cause, "give the body of /metrics") from None


def _lines(reading: Reading) -> list[str]:
    lines = [f"not vLLM's metrics: {reading.why_not}"]
    if reading.vllm:
        lines = [f"vLLM, {reading.engine_kind} engine, {len(reading.engines)} seen"]
    for engine in reading.engines:
        lines.append(f"\nengine {engine.engine}  {engine.model_name or ''}".rstrip())
        absent = [name for name in FIELD_NAMES if getattr(engine, name) is None]
        known = [name for name in FIELD_NAMES if name not in absent]
        lines += [f"  {name:36}{_shown(getattr(engine, name))}" for name in known]
        lines.append(f"  not offered: {', '.join(absent) or 'nothing'}")
    if reading.unknown_families:
        lines.append(f"\nfamilies without a field: {', '.join(reading.unknown_families)}")
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, Histogram):
        said = f"{value.count:.15g} observed"
        if not value.count or value.sum is None:
            return said
        return f"{said}, mean {value.sum / value.count:.6g}"
    if isinstance(value, Mapping):
        return "  ".join(f"{key}={_shown(each)}" for key, each in value.items())
    return f"{value:.15g}" if isinstance(value, float) else str(value)
