"""Which addresses are this host's, in the one place that says so."""

from pathlib import Path

import pytest

from vllm_watch.sources.sockets import is_here, is_loopback, serves_here


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A namespace with 10.0.0.5 and 2001:db8::5, as the kernel tells it."""
    (tmp_path / "fib_trie").write_text(
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.9\n        /32 link UNICAST\n"
    )
    (tmp_path / "if_inet6").write_text("20010db8000000000000000000000005 02 40 00 80 eth0\n")
    return tmp_path


LOOPBACK, OWN, ELSEWHERE = "loopback", "own", "elsewhere"
HOSTS = {
    LOOPBACK: ("localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"),
    OWN: ("10.0.0.5", "::ffff:10.0.0.5", "2001:db8::5", "2001:0db8:0:0::5"),
    # Names, too: whoever owns one can point it at another host.
    ELSEWHERE: ("localhost.evil", "evil.localhost", "127.0.0.1.evil", "10.0.0.9", "2001:db8::6", "::ffff:10.0.0.9", "", "0x7f.1"),
}  # fmt: skip


@pytest.mark.parametrize(("where", "host"), [(where, host) for where in HOSTS for host in HOSTS[where]])  # fmt: skip
def test_where_a_host_is(where: str, host: str, net: Path, tmp_path: Path) -> None:
    """Own addresses are those of the network namespace that is asked about, and of no other."""
    assert is_loopback(host) is (where == LOOPBACK)
    assert is_here(host, net) is (where != ELSEWHERE)
    assert is_here(host, tmp_path / "other") is (where == LOOPBACK)


async def test_urls_are_asked_about_by_their_host(net: Path) -> None:
    assert await serves_here("http://[2001:db8::5]:8000/metrics", net)
    assert not await serves_here("http://localhost@10.0.0.9:8000", net)
