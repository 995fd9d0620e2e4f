"""Whatever stands where a file is expected: it is read whole, or refused at once."""

import asyncio
import os
import re
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from vllm_watch.cli.helpers import connection
from vllm_watch.clients import signed_post
from vllm_watch.errors import WatchError
from vllm_watch.export import otlp_exporter, web_config
from vllm_watch.notify.apprise import Notifier
from vllm_watch.restart import backends
from vllm_watch.settings import tls, web
from vllm_watch.settings.notifications import AppriseNotifier
from vllm_watch.settings.restart import BlockersSettings
from vllm_watch.settings.tls import TlsFileError
from vllm_watch.sources import what_answered
from vllm_watch.support import regular_file, token_file


def is_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def is_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "a pipe"),
    "a folder": (Path.mkdir, "a folder"),
    "a socket": (is_socket, "a socket"),
    "a link to a device": (is_link_to_device, "a device"),
}


@pytest.mark.parametrize(("make", "kind"), ODD.values(), ids=ODD)
def test_anything_but_a_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object], kind: str
) -> None:
    path = tmp_path / "odd"
    make(path)
    for reads in (regular_file.check, regular_file.opened, lambda each: regular_file.read(each, 9)):
        with pytest.raises(OSError, match=f"is {kind}, not a regular file"):
            reads(path)


def test_a_file_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    """`/proc/kmsg` is a regular file to the kernel; reading it waits for the next message, unless it is asked not to."""
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with regular_file.opened(path) as file:
        assert not os.get_blocking(file.fileno())
        assert file.read() == b"x"
    if os.access("/proc/kmsg", os.R_OK):  # root's
        reading = threading.Thread(target=_unread, args=(Path("/proc/kmsg"),), daemon=True)
        reading.start()
        reading.join(20)
        assert not reading.is_alive()


def _unread(path: Path) -> None:
    with suppress(OSError):
        regular_file.read(path, 1 << 26)


def test_a_file_has_so_many_bytes_at_most(tmp_path: Path) -> None:
    """One byte more is an error: half of a key is no key."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 9)
    assert regular_file.read(path, 9) == b"x" * 9
    with pytest.raises(regular_file.TooLargeError):
        regular_file.read(path, 8)


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert regular_file.read(link, 9) == b"x"
    with pytest.raises(OSError, match="symbolic link"):
        regular_file.read(link, 9, follow=False)


def test_a_command_takes_a_pipe_that_a_shell_made(tmp_path: Path) -> None:
    """`diagnose <(kubectl logs …)`: all of it is read, in however many pieces it comes."""
    reading, writing = os.pipe()
    os.write(writing, b"first ")
    with regular_file.opened(Path(f"/proc/self/fd/{reading}"), pipes=True) as file:
        assert file.peek(1)[:1] == b"f"
        os.write(writing, b"second")
        os.close(writing)
        os.close(reading)
        assert file.read() == b"first second"


SECRETS = {
    "ours alone": (0o600, 0, None),
    "ours, of another user than root": (0o600, os.geteuid(), None),
    "another user's": (0o600, 12345, "belongs to user 12345"),
    "a Kubernetes Secret by fsGroup": (0o440, 0, None),
    "root's, and a group may write": (0o460, 0, "others may read it"),
    "another user's, and a group may read": (0o640, 12345, "others may read it"),
    "root's, and everybody may read": (0o444, 0, "others may read it"),
}


@pytest.mark.parametrize(("mode", "owner", "why"), SECRETS.values(), ids=SECRETS)
def test_whether_a_file_keeps_a_secret(mode: int, owner: int, why: str | None) -> None:
    """What root lets a group read was mounted so: a pod gets its Secrets no other way."""
    status = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, 1000, 40, 0, 0, 0))
    found = regular_file.exposure(status)
    assert found is None if why is None else found is not None and why in found


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """The mode is that of the very file that is read, not of one that stood there a moment before."""
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o600)
    assert regular_file.read(path, 99, if_exposed="refused") == b"secret"
    path.chmod(0o644)
    for reads in (regular_file.check, lambda each, **of: regular_file.read(each, 99, **of)):
        with pytest.raises(OSError, match="others may read it: chmod 600"):
            reads(path, if_exposed="refused")


def test_a_secret_that_is_carried_is_read_with_a_warning(tmp_path: Path) -> None:
    """Once for each reason, and again after it was private in between."""
    path = tmp_path / "key"
    path.write_text("secret")
    path.chmod(0o600)
    with capture_logs() as logged:
        for mode in (0o600, 0o644, 0o644, 0o600, 0o644):
            path.chmod(mode)
            assert regular_file.read(path, 99, if_exposed="warned") == b"secret"
    assert [(each["event"], each["because"]) for each in logged] == [
        ("secret_exposed", "others may read it")
    ] * 2


def _blockers(file: Path) -> object:
    settings = BlockersSettings(prometheus_url="http://127.0.0.1:1", queries=("up",), token_file=file)  # fmt: skip

    async def ask() -> object:
        async with signed_post.new_session() as session:
            return await backends.ask(settings, session)

    return asyncio.run(ask())


def _urls_file(file: Path) -> object:
    made = Notifier.__new__(Notifier)
    made._settings = AppriseNotifier(name="chat", urls_file=file)
    return made._file()


def _token(file: Path) -> object:
    made = token_file.TokenFile("ana", file, ()).digest()
    if made is None:
        raise OSError
    return made


CARRIED = {
    "scrape.api_key_file": what_answered.read_key,
    "secret_file and bearer_file": lambda file: signed_post.read_secret(file, "secret_file"),
    "restart.blockers.token_file": _blockers,
    "otlp.headers_file": otlp_exporter._headers,
    "key_file of engines": lambda file: tls._read("key_file", file, ""),
    "key_file of web_config": lambda file: web_config.context_of(web.TlsSettings(cert_file=file, key_file=file)),
}  # fmt: skip
NAMED = {
    "stages": {"api_key_file", "headers_file"}, "hooks": {"secret_file"}, "notifications": {"secret_file", "bearer_file", "urls_file"},
    "restart": {"token_file"}, "tls": {"key_file"}, "web": {"key_file"},
}  # fmt: skip
"""All settings that name a file with a secret, by their module; `api.tokens` has a key `file`."""

OPENING = {
    "api.tokens": _token,
    "--token-file": lambda file: connection.secret_of("--token-file", file),
    "--cert-file": lambda file: connection.Connection(cert_file=file).tls(),
    "urls_file": _urls_file,
}


@pytest.mark.parametrize("reads", CARRIED.values(), ids=CARRIED)
def test_a_key_of_others_is_taken_with_a_warning(
    tmp_path: Path, reads: Callable[[Path], object]
) -> None:
    """As Kubernetes mounts a Secret by default, and as an umask of 022 leaves a file."""
    key = tmp_path / "key"
    key.write_text("Authorization: a-key-of-others")
    key.chmod(0o644)
    with capture_logs() as logged, suppress(WatchError, TlsFileError):
        reads(key)
    assert [each["event"] for each in logged if each["event"] == "secret_exposed"]


def test_every_setting_that_names_a_secret_is_tried() -> None:
    """A new one belongs in a table above."""
    found = {
        path.stem: set(re.findall(r"^    (\w*(?:key|secret|token|bearer|urls|headers|password)_file): ", path.read_text(), re.MULTILINE))
        for path in Path(tls.__file__).parent.glob("*.py")
    }  # fmt: skip
    assert {name: keys for name, keys in found.items() if keys} == NAMED


@pytest.mark.parametrize("reads", OPENING.values(), ids=OPENING)
def test_what_opens_vllm_watch_is_refused(tmp_path: Path, reads: Callable[[Path], object]) -> None:
    """It is read while it is private, and not once others may read it."""
    key = tmp_path / "key"
    key.write_text("a-token-of-enough-characters")
    key.chmod(0o644)
    with capture_logs() as logged, pytest.raises((WatchError, OSError)) as refused:
        reads(key)
    assert "others may read it" in f"{refused.value} {logged}"
