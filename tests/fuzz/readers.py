"""What is fuzzed beside the large readers: files that are named, and clients against whatever answers them."""

import asyncio
import contextlib
import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from structlog.testing import capture_logs

from tests.cli.answering import answer, answering
from tests.restart.hooks.calls import call
from vllm_watch.__main__ import main
from vllm_watch.clients import signed_post
from vllm_watch.clients.kubernetes import Access, Api, KubernetesError
from vllm_watch.discovery import kubernetes as discovery_kubernetes
from vllm_watch.discovery.files import FileTargets
from vllm_watch.errors import WatchError
from vllm_watch.export import otlp_exporter, web_config
from vllm_watch.restart import blockers
from vllm_watch.restart.hooks import base, docker, kubernetes, kubernetes_target
from vllm_watch.settings.hooks import DockerHook, KubernetesHook
from vllm_watch.settings.restart import BlockersSettings
from vllm_watch.settings.target import KubernetesDiscovery
from vllm_watch.sources import what_answered
from vllm_watch.support import token_file

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
            for read in (what_answered.read_key, _secret, otlp_exporter._headers, web_config._load):
                with contextlib.suppress(OSError, WatchError):
                    read(paths[2])

        yield take


def _secret(path: Path) -> bytes:
    return signed_post.read_secret(path, "secret_file")


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
                said, wrong = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
                    status = main([*command, "--url", one.url, *with_token])
                assert status in (0, 1, 2)
                assert status != 2 or wrong.getvalue().startswith("vllm-watch: "), wrong.getvalue()

        yield take


@contextmanager
def cluster() -> Iterator[object]:
    """What a Kubernetes API server answers: pods are found, hooks judge, or say why not."""
    with answering() as one, capture_logs() as logged:
        one.pause_s = 0.0
        access = Access(url=one.url, namespace="serving")
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
            watch._api = lambda: Api(access, signed_post.new_session)
            for step in (watch._list, watch._watch):
                with contextlib.suppress(KubernetesError):
                    await step()
            found._targets(qualified=True)
            for each in settings:
                hook = kubernetes.Hook(each, tools)
                await hook.refusal(CALL)
                await hook.rehearse(CALL)
                await hook.restart(CALL)

        def take(data: bytes) -> None:
            logged.clear()
            one.pieces = (answers(data),)
            asyncio.run(all_of_it())

        with (
            patch.object(kubernetes_target, "in_cluster", lambda _: access),
            patch.object(kubernetes, "LOOK_SECONDS", 0.05),
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
def services() -> Iterator[object]:
    """What Prometheus and a webhook's receiver answer: a yes only where it was said; else why not."""
    with answering() as one:
        one.pause_s = 0.0
        settings = BlockersSettings(prometheus_url=one.url, queries=("up",), alerts=".*")

        async def all_of_it() -> None:
            async with signed_post.new_session() as session:
                for each in await blockers.ask(settings, session):
                    assert each.allows in (True, False, None)
            posted = await signed_post.post(signed_post.new_session, one.url, b"{}", {}, 5.0, 1.8e9)
            assert posted.end in ("answered", "no_answer", "cut_off", "not_reached")

        def take(data: bytes) -> None:
            one.pieces = (answers(data),)
            asyncio.run(all_of_it())

        yield take
