"""Which keys does a query see? Ways to choose n of them, by the names that experiments use."""

from __future__ import annotations

from collections.abc import Callable

from attnlimit.samplers import Iid, Keep, Sampler, SinksAndRecent, TopK

NAMES = {
    "iid": "i.i.d.",
    "recent": "4 sinks + recent",
    "recent+": "4 sinks + n/4 recent + weighted rest",
    "top": "top n",
    "top+": "top n/4 + weighted rest",
}
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "iid": Iid,
    "recent": lambda n: SinksAndRecent(4, n - 4),
    "recent+": lambda n: Keep(SinksAndRecent(4, n // 4), sample=n - n // 4 - 4),
    "top": TopK,
    "top+": lambda n: Keep(TopK(max(1, n // 4)), sample=n - max(1, n // 4)),
}
