"""How is a sampler written in a few characters? As on the command line and in plan files.

threshold:48:4bit     a threshold by keys of 4 bits; also rank16, page16, and a floor: 4bit:0.2
threshold:48   top-k:64   top-p:0.95   iid:200   without-replacement:200
window:64,50   sinks-recent:4,64   sinks-window:4,64
top-k:64+192          the best 64 and a weighted sample of 192 of the rest
sinks-recent:4,64+192plain          the same with a sample that is not weighted
+192                  the best key and a weighted sample of 192
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from attnlimit.errors import BadInput
from attnlimit.samplers.base import Sampler
from attnlimit.samplers.iid import Iid
from attnlimit.samplers.keep import Keep
from attnlimit.samplers.proxies.spec import check_proxy, parse_proxy, proxy_spec
from attnlimit.samplers.sinks_and_recent import SinksAndRecent
from attnlimit.samplers.sinks_and_window import SinksAndWindow
from attnlimit.samplers.threshold import Threshold
from attnlimit.samplers.top_k import TopK
from attnlimit.samplers.top_p import TopP
from attnlimit.samplers.window import Window
from attnlimit.samplers.without_replacement import WithoutReplacement

_KINDS: dict[str, tuple[type[Sampler], tuple[Callable[[str], float], ...]]] = {
    "threshold": (Threshold, (float,)),
    "top-k": (TopK, (int,)),
    "top-p": (TopP, (float,)),
    "iid": (Iid, (int,)),
    "without-replacement": (WithoutReplacement, (int,)),
    "window": (Window, (int, int)),
    "sinks-recent": (SinksAndRecent, (int, int)),
    "sinks-window": (SinksAndWindow, (int, int)),
}
NAMES = tuple(_KINDS)
_SAMPLE = re.compile(r"(?P<kept>.*)\+(?P<sample>\d+)(?P<plain>plain)?")


def parse_sampler(text: str) -> Sampler:
    """Return the sampler that a text such as "threshold:48" names."""
    written = text.strip()
    sampled = _SAMPLE.fullmatch(written)
    if sampled is not None and "e+" not in written:
        kept = parse_sampler(sampled["kept"]) if sampled["kept"] else None
        return Keep(kept, int(sampled["sample"]), weighted=sampled["plain"] is None)
    name, _, numbers = written.partition(":")
    if name not in _KINDS:
        raise BadInput(
            f"There is no sampler {text!r}; write one of {', '.join(_KINDS)} and its size, like "
            "threshold:48, top-k:64 or top-k:64+192 (the best 64 and a weighted sample of 192)."
        )
    kind, readers = _KINDS[name]
    numbers, _, proxy = numbers.partition(":")
    given = numbers.split(",") if numbers else []
    try:
        if len(given) != len(readers) or (proxy and kind is not Threshold):
            raise ValueError
        return kind(*(read(part) for read, part in zip(readers, given, strict=True)), **_by(proxy))
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        example = {1: f"{name}:48", 2: f"{name}:4,64"}[len(readers)]
        raise BadInput(f"{text!r} is not a sampler's size; write it like {example}.") from None


def _by(text: str) -> dict[str, Any]:
    """What a threshold looks at, and its floor: "4bit" or "4bit:0.2"."""
    proxy, _, floor = text.partition(":")
    found: dict[str, Any] = {"proxy": parse_proxy(proxy)} if proxy else {}
    return found | ({"floor": float(floor)} if floor else {})


def sampler_spec(sampler: Sampler) -> str:
    """Return the text that `parse_sampler` reads as this sampler."""
    if isinstance(sampler, Keep):
        kept = "" if sampler.kept is None else sampler_spec(sampler.kept)
        return f"{kept}+{sampler.sample}{'' if sampler.weighted else 'plain'}"
    if type(sampler) is Threshold:
        by = "" if sampler.proxy is None else f":{proxy_spec(check_proxy(sampler.proxy))}"
        by += f":{sampler.floor!r}" if by and sampler.floor != Threshold.floor else ""
        return f"threshold:{sampler.c!r}{by}"
    for name, (kind, _) in _KINDS.items():
        if type(sampler) is kind:
            return f"{name}:{','.join(repr(size) for size in vars(sampler).values())}"
    raise BadInput(f"{sampler!r} is not one of the package's samplers, so it cannot be written.")
