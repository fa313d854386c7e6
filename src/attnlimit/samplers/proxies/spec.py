"""How is a proxy written in a few characters? 4bit, rank16, page16."""

from __future__ import annotations

import re
from collections.abc import Callable

from attnlimit.errors import BadInput
from attnlimit.samplers.proxies.base import Proxy
from attnlimit.samplers.proxies.bits import Bits
from attnlimit.samplers.proxies.pages import Pages
from attnlimit.samplers.proxies.rank import Rank

_KINDS: dict[str, Callable[[int], Proxy]] = {
    r"(\d+)bit": Bits,
    r"rank(\d+)": Rank,
    r"page(\d+)": Pages,
}


def parse_proxy(text: str) -> Proxy:
    """Return the proxy that a text such as "4bit" names."""
    for pattern, kind in _KINDS.items():
        found = re.fullmatch(pattern, text.strip())
        if found is not None:
            return kind(int(found[1]))
    raise BadInput(
        f"There is no proxy {text!r} for keys; write 4bit, rank16 (keys of 16 dimensions) or "
        "page16 (the best score a page of 16 keys can have)."
    )


def check_proxy(proxy: object) -> Proxy:
    """Return a proxy as it is or as its text says; refuse anything else with one sentence."""
    if isinstance(proxy, str):
        return parse_proxy(proxy)
    if isinstance(proxy, Proxy):
        return proxy
    raise BadInput(f'{proxy!r} is not a proxy for keys; give one such as "4bit" or al.Bits(4).')


def proxy_spec(proxy: Proxy) -> str:
    """Return the text that `parse_proxy` reads as this proxy."""
    if type(proxy) is Bits:
        return f"{proxy.bits}bit"
    if type(proxy) is Rank:
        return f"rank{proxy.rank}"
    if type(proxy) is Pages:
        return f"page{proxy.size}"
    raise BadInput(f"{proxy!r} is not one of the package's proxies, so it cannot be written.")
