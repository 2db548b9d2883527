"""The names by which a processor may be asked.

A page of another site can give its own name the address of this port (DNS rebinding). The browser then takes what is
served here for that site's own, so neither the policy of the browser nor a same-origin header protects it. What the
page cannot change is the name in the ``Host`` header. Starlette's ``TrustedHostMiddleware`` compares names alone: it
knows neither addresses nor loopback, and does not say which setting refuses.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address

ANY = "*"
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


class Hosts:
    """Loopback, what the server listens on, and what is configured.

    >>> hosts = Hosts("127.0.0.1", ["gforce.example", "*.internal"])
    >>> [hosts.allow(host) for host in ("localhost:9464", "[::1]", "GFORCE.example", "a.b.internal")]
    [True, True, True, True]
    >>> [hosts.allow(host) for host in ("evil.example", "internal", "10.0.0.7", "", "localhost@evil.example")]
    [False, False, False, False, False]
    >>> Hosts("0.0.0.0", []).allow("10.0.0.7:9464")
    True
    """

    def __init__(self, listening: str, allowed: Collection[str] = ()) -> None:
        patterns = {_plain(pattern) for pattern in allowed}
        own = _plain(listening)
        self._any = ANY in patterns
        self._names = {"localhost", own} | patterns
        self._suffixes = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*."))
        # An address needs no look-up, so nobody can rebind it. Probes of Kubernetes and Prometheus ask by address, and
        # behind a service or a mapped port it is not the one we listen on. On loopback alone nobody comes that way.
        self._any_address = own != "localhost" and not _is_loopback(_address(own))

    def allow(self, host: str) -> bool:
        """Whether a ``Host`` header, with or without a port, names this server."""
        if self._any:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = _plain(found["v6"] or found["name"])
        address = _address(name)
        if address is not None:
            return self._any_address or _is_loopback(address) or name in self._names
        return name in self._names or name.endswith(self._suffixes)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _is_loopback(address: IPv4Address | IPv6Address | None) -> bool:
    return address is not None and address.is_loopback
