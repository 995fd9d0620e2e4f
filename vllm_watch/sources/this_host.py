"""Decide if an address belongs to this host."""

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.sources.sockets import local_v4, local_v6
from vllm_watch.support import threads

NET = Path("/proc/self/net")

ADDRESSES_SECONDS = 2.0


def is_loopback(host: str) -> bool:
    """Return True for a name or address that means this machine in any network."""
    if host.lower().removesuffix(".") == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_here(host: str, net: Path = NET) -> bool:
    """Return False for names other than localhost, because they may move to another host. Raises PermissionError."""
    if is_loopback(host):
        return True
    address = _address(host)
    return address is not None and str(address) in local_v4(net) | local_v6(net)


async def serves_here(url: str, net: Path = NET) -> bool:
    """Return True if the URL's host is here; False if the kernel is too slow."""
    host = urlsplit(url).hostname or ""
    try:
        return await threads.run(lambda: is_here(host, net), ADDRESSES_SECONDS)
    except (OSError, MemoryError):
        return False


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
