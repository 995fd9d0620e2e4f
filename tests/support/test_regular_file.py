"""Whatever stands where a file is expected: it is read whole, or refused at once."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_watch.support import regular_file


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
    """Neither opening nor reading it blocks."""
    path = tmp_path / "odd"
    make(path)
    for reads in (regular_file.check, regular_file.opened, lambda each: regular_file.read(each, 9)):
        with pytest.raises(OSError, match=f"is {kind}, not a regular file"):
            reads(path)


def test_a_file_has_so_many_bytes_at_most(tmp_path: Path) -> None:
    """One byte more is an error: half of a key is no key."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 9)
    assert regular_file.read(path, 9) == b"x" * 9
    with pytest.raises(regular_file.TooLargeError):
        regular_file.read(path, 8)


def test_a_link_is_followed_unless_it_must_not_be(tmp_path: Path) -> None:
    """Kubernetes mounts a Secret's keys as links."""
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
    found = regular_file.exposed(status)
    assert found is None if why is None else found is not None and why in found


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """The mode is that of the very file that is read, not of one that stood there a moment before."""
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o600)
    assert regular_file.read(path, 99, secret=True) == b"secret"
    path.chmod(0o644)
    with pytest.raises(OSError, match="others may read it: chmod 600"):
        regular_file.read(path, 99, secret=True)
