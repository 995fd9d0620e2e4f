"""What is fuzzed beside the large readers: files that are named, and clients against whatever answers them."""

import asyncio
import contextlib
import io
import json
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import aiohttp
from structlog.testing import capture_logs

from tests.capacity.models import LLAMA_31_8B
from tests.cli.answering import answer, answering
from tests.restart.hooks.calls import call
from vllm_watch.__main__ import main
from vllm_watch.cli.helpers import exit_status, launch
from vllm_watch.clients import signed_post
from vllm_watch.clients.kubernetes import Api, KubernetesError
from vllm_watch.config import Config
from vllm_watch.discovery import kubernetes as discovery_kubernetes
from vllm_watch.discovery.files import FileTargets
from vllm_watch.errors import ConfigError, WatchError
from vllm_watch.export import otlp_exporter, web_config
from vllm_watch.notify import apprise
from vllm_watch.restart import backends
from vllm_watch.restart.hooks import base, docker, kubernetes
from vllm_watch.restart.locks import file as file_lock
from vllm_watch.restart.locks import lease
from vllm_watch.settings import tls, web
from vllm_watch.settings.hooks import DockerHook, KubernetesHook
from vllm_watch.settings.notifications import AppriseNotifier
from vllm_watch.settings.restart import BlockersSettings, LockSettings
from vllm_watch.settings.stages import CanarySettings
from vllm_watch.settings.target import KubernetesDiscovery, TargetConfig
from vllm_watch.sources import canary, http, vllm, what_answered
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.prometheus_history import History
from vllm_watch.state import seal
from vllm_watch.support import token_file

LEASE = LockSettings(kind="lease", namespace="serving")
TOKEN = "a-token-of-enough-characters"
STATUSES = ("200 OK", "201 Created", "409 Conflict", "404 Not Found", "429 Too Many", "500 Oh")
CALL = call(pod="llama-0", namespace="serving", process_start_time=1.8e9)


def answers(data: bytes) -> bytes:
    """Return an answer: the bytes as they are if they begin as HTTP does, else as the body of one."""
    if data.startswith(b"HTTP"):
        return data
    return answer(data, STATUSES[data[0] % len(STATUSES)] if data[:1] not in (b"{", b"[", b"") else STATUSES[0])  # fmt: skip


@contextmanager
def files() -> Iterator[object]:
    """A file_sd file, and files of keys: read, or refused as documented."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.json", "a.yaml", "token")]

        def take(data: bytes) -> None:
            for path in paths:
                path.write_bytes(data)
                path.chmod(0o600)
            targets, problems = FileTargets((f"{folder}/a.*",)).read()
            assert targets or problems or data.strip() in (b"[]", b"{}") or b"targets" in data
            with capture_logs():
                token_file.TokenFile("ana", paths[2], ()).digest()
            chat = apprise.Notifier.__new__(apprise.Notifier)
            chat._settings = AppriseNotifier(name="chat", urls_file=paths[2])
            with capture_logs(), contextlib.suppress(OSError, WatchError):
                chat._file()
            for read in (
                what_answered.read_key,
                _secret,
                otlp_exporter._headers,
                web_config._load,
                _tls,
            ):
                with contextlib.suppress(OSError, WatchError, tls.TlsFileError):
                    read(paths[2])

        yield take


def _tls(path: Path) -> None:
    with contextlib.suppress(ConfigError):
        web_config.context_of(web.TlsSettings(cert_file=path, key_file=path))
    tls._certify(ssl.create_default_context(), path, path)


def _secret(path: Path) -> bytes:
    return signed_post.read_secret(path, "secret_file")


@contextmanager
def state() -> Iterator[object]:
    """What stands in our folders: a lock, the state's generation: read, or damaged."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lock = file_lock.Lock(folder, "restart", slots=1, ttl_seconds=30.0)
        paths = (lock._file, folder / seal.NAME)

        def take(data: bytes) -> None:
            # Most of a lock's file is of another boot unless it names this one.
            for path in paths:
                path.write_bytes(data.replace(b"BOOT", file_lock._boot_id().encode()))
            held = asyncio.run(lock.acquire("us", "attempt-1"))
            assert held.held in (True, False, None)
            asyncio.run(lock.release())
            with contextlib.suppress(OSError):
                seal.read_marker(folder)

        yield take


OF_THE_MODEL = ("config.json", "model.safetensors.index.json", "hf_quant_config.json", "model-1.safetensors")  # fmt: skip


@contextmanager
def checkpoint() -> Iterator[object]:
    """A model's files, here and on the Hub, for `capacity` and `preflight`: an exit status, and no traceback."""
    with tempfile.TemporaryDirectory() as name, answering() as one:
        folder, one.pause_s = Path(name), 0.0
        machine = ("--gpu-name", "H100", "--gpus", "2", "--json")
        whole = folder / "whole.json"
        whole.write_text(json.dumps(LLAMA_31_8B))
        (folder / "hub/models--a--b/refs").mkdir(parents=True)
        commands = [
            ["capacity", name, *machine],
            ["capacity", "nobody/nothing", "--from-hub", *machine],
            ["capacity", "a/b", *machine],
            ["capacity", str(whole), "--speculative-config", f'{{"model": "{name}"}}', *machine],
        ]

        def take(data: bytes) -> None:
            for each in (*OF_THE_MODEL, "hub/models--a--b/refs/main"):
                (folder / each).write_bytes(data)
            one.pieces = (answers(data),)
            for command in commands:
                _command(command, (0, 2, 3))
            launch._looked_at(folder, "folder", None, {})

        with patch.dict(os.environ, {"HF_ENDPOINT": one.url, "HF_HOME": name}):
            yield take


def _command(words: list[str], statuses: tuple[int, ...]) -> None:
    said, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
        status = main(words)
    assert status in statuses
    assert status != exit_status.WRONG_USAGE or wrong.getvalue().startswith("vllm-watch: "), wrong.getvalue()  # fmt: skip


COMMANDS = (
    ("pause", "--reason", "x"), ("approve", "engine_down-a-1"), ("journal",), ("top", "--once"), ("advise",),
)  # fmt: skip


@contextmanager
def daemon() -> Iterator[object]:
    """What answers a command in a daemon's place: an exit status, a sentence, and no traceback."""
    with tempfile.TemporaryDirectory() as folder, answering() as one:
        token, one.pause_s = Path(folder) / "token", 0.0
        token.write_text(TOKEN)
        token.chmod(0o600)

        def take(data: bytes) -> None:
            whole = answers(data)
            one.pieces = (whole[: len(whole) // 2], whole[len(whole) // 2 :])
            for command in COMMANDS:
                with_token = (
                    ("--token-file", str(token)) if command[0] in ("pause", "approve") else ()
                )
                _command([*command, "--url", one.url, *with_token], (0, 1, 2))

        yield take


@contextmanager
def cluster() -> Iterator[object]:
    """What a Kubernetes API server answers: pods are found, hooks judge, or say why not."""
    with answering() as one, capture_logs() as logged:
        one.pause_s = 0.0
        api = Api(url=one.url, namespace="serving")
        tools = base.Tools(environ={})
        settings = [
            KubernetesHook(name="k").model_copy(update={"timeout_seconds": 0.3}),
            KubernetesHook(
                name="k", action="rollout_restart", workload="deployment/llama"
            ).model_copy(update={"timeout_seconds": 0.3}),
        ]

        async def all_of_it() -> None:
            found = discovery_kubernetes.KubernetesTargets(
                KubernetesDiscovery(selector="app=llama"), {}, lambda: None
            )
            [watch] = found._watches
            watch._api = lambda: api
            for step in (watch._list, watch._watch):
                with contextlib.suppress(KubernetesError):
                    await step()
            found._targets(qualified=True)
            for each in settings:
                hook = kubernetes.Hook(each, tools)
                await hook.refusal(CALL)
                await hook.rehearse(CALL)
                await hook.restart(CALL)
            # An id of our own choice would be another in each run of one input.
            held = await lease.make(LEASE, tools).acquire("us", "attempt-1")
            assert held.held in (True, False, None)

        def take(data: bytes) -> None:
            logged.clear()
            one.pieces = (answers(data),)
            asyncio.run(all_of_it())

        with (
            patch.object(kubernetes, "in_cluster", lambda *_: api),
            patch.object(kubernetes, "POLL_SECONDS", 0.05),
            patch.object(lease, "in_cluster", lambda *_: api),
        ):
            yield take


@contextmanager
def engine_api() -> Iterator[object]:
    """What answers at Docker's socket: a finding and an outcome of the contract."""
    with tempfile.TemporaryDirectory() as folder, answering(Path(folder) / "socket") as one:
        one.pause_s = 0.0
        settings = DockerHook(name="d", container="llama", socket=Path(folder) / "socket")

        def take(data: bytes) -> None:
            one.pieces = (answers(data),)
            hook = docker.Hook(settings, base.Tools())
            asyncio.run(_hook(hook))

        yield take


async def _hook(hook: docker.Hook) -> None:
    await hook.refusal(CALL)
    await hook.rehearse(CALL)
    result = await hook.restart(CALL)
    assert result.outcome in (base.DONE, base.REFUSED, base.FAILED, base.UNCERTAIN)


@contextmanager
def engine() -> Iterator[object]:
    """What an engine answers at every path: observed and asked for a token, or it is said why not."""
    with answering() as one:
        one.pause_s = 0.0
        target = TargetConfig(url=one.url)
        scrape = Config(targets=(target,)).scrape_for(target)

        async def all_of_it() -> None:
            async with http.Session() as session:
                neighbours = Neighbours(ProcessListing(Path("/proc")), Path("/proc"))
                source = vllm.VllmSource(target.identity(), scrape, session, neighbours)
                await source.observe()
                for understand in (vllm._models, *(each for _, each in vllm._SWITCHES.values())):
                    await source._ask_json("/version", understand)
                await canary.CanarySource(target.identity(), "", CanarySettings().timeout_seconds, scrape, session).ask("m", None)  # fmt: skip

        def take(data: bytes) -> None:
            one.pieces = (answers(data),)
            asyncio.run(all_of_it())

        yield take


@contextmanager
def services() -> Iterator[object]:
    """What Prometheus and a webhook's receiver answer: a yes only where it was said; else why not."""
    with answering() as one:
        one.pause_s = 0.0
        settings = BlockersSettings(prometheus_url=one.url, queries=("up",), alerts=".*")

        async def all_of_it() -> None:
            async with signed_post.new_session() as session:
                for each in await backends.ask(settings, session):
                    assert each.allows in (True, False, None)
            async with aiohttp.ClientSession() as session:
                stored = History(one.url, session, {})
                with contextlib.suppress(WatchError):
                    for each in await stored.targets("", 1.7e9, 1.7e9 + 60):
                        _ = [made async for made in stored.observations(each, 1.7e9, 1.7e9 + 60)]
            posted = await signed_post.post(signed_post.new_session, one.url, b"{}", {}, 5.0, 1.8e9)
            assert posted.end in ("answered", "no_answer", "cut_off", "not_reached")

        def take(data: bytes) -> None:
            one.pieces = (answers(data),)
            asyncio.run(all_of_it())

        yield take
