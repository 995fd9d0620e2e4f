"""How far discovery reaches: which hosts may be watched because somebody else named them, and which get our key.

A file of targets is written by other programs, from what others say of themselves: a pod's annotation may
name any host. To ask it for its metrics tells it little; to show it the bearer key of all engines tells it
everything. So a host that the operator has not named gets no key, and with `discovery.allow` is not asked at all.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.settings.target import TargetConfig

_NO_KEY = ScrapeSettings.model_validate({"api_key_file": None})


def within(targets: Iterable[TargetConfig], allow: Sequence[str]) -> list[TargetConfig]:
    """Return those whose host is allowed; all of them where nothing is said."""
    return [each for each in targets if not allow or is_allowed(each.url, allow)]


def without_key(targets: Iterable[TargetConfig]) -> list[TargetConfig]:
    """Return them as targets that are never shown our key."""
    return [each.model_copy(update={"scrape": _NO_KEY}) for each in targets]


def is_allowed(url: str, allow: Sequence[str]) -> bool:
    """Is the URL's host one of these names (`*.` stands for any below), addresses or networks?"""
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return any(_names(host, each.lower()) for each in allow)
    return any(_holds(each, address) for each in allow)


def _names(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _holds(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False  # a name says nothing of addresses: it may be made to lead anywhere
