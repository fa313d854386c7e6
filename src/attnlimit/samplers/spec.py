"""Samplers as text, on the command line and in plan files, and their registration.

    threshold:48:4bit     threshold by keys of 4 bits; also page16, and a floor: 4bit:0.2
    threshold:48   top-k:64   top-p:0.95   iid:200   without-replacement:200
    window:64,50   sinks-recent:4,64   sinks-window:4,64
    top-k:64+192          the best 64 and a weighted sample of 192 of the rest
    sinks-recent:4,64+192plain          the same with a sample that is not weighted
    +192                  the best key and a weighted sample of 192

A sampler of another package takes part under a name of its own: by `register("nearby")` on its
class, or, without an import, by an entry point of the group "attnlimit.samplers" whose name is that
of the sampler and whose value is its class.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from attnlimit.errors import BadInput
from attnlimit.registry import Registry
from attnlimit.samplers.base import Sampler
from attnlimit.samplers.positional import SinksAndRecent, SinksAndWindow, Window
from attnlimit.samplers.threshold import Threshold
from attnlimit.samplers.top import TopK, TopP
from attnlimit.samplers.two_level import TwoLevel
from attnlimit.samplers.uniform import Iid, Keep, WithoutReplacement

Kind = TypeVar("Kind", bound=type[Sampler])
REGISTERED: Registry[type[Sampler]] = Registry("attnlimit.samplers")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SAMPLE = re.compile(r"(?P<kept>.*)\+(?P<sample>\d+)(?P<plain>plain)?")


def register(name: str) -> Callable[[Kind], Kind]:
    """Class decorator: give a sampler a name in plan files and on the command line.

    Arguments are written and read as the fields of the dataclass, numbers separated by commas; a
    class with other arguments overrides `Sampler.arguments` and `Sampler.from_arguments`.

    Examples
    --------
    >>> @register("every-other")
    ... @dataclass(frozen=True)
    ... class EveryOther(al.Sampler):
    ...     offset: int = 0
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise BadInput(f"A sampler's name has lower-case letters, digits and -; got {name!r}.")

    def add(kind: Kind) -> Kind:
        known = REGISTERED.get(name)
        # A class defined again, as in a notebook, replaces itself.
        if known is not None and known.__qualname__ != kind.__qualname__:
            raise BadInput(f"The sampler name {name!r} already belongs to {known.__name__}.")
        kind.spec_name = name
        REGISTERED[name] = kind
        return kind

    return add


_BUILT_IN: dict[str, type[Sampler]] = {
    "threshold": Threshold,
    "two-level": TwoLevel,
    "top-k": TopK,
    "top-p": TopP,
    "iid": Iid,
    "without-replacement": WithoutReplacement,
    "window": Window,
    "sinks-recent": SinksAndRecent,
    "sinks-window": SinksAndWindow,
}
for _name, _kind in _BUILT_IN.items():
    register(_name)(_kind)


def sampler_names() -> tuple[str, ...]:
    """Names of all samplers: the package's, those registered, and those of entry points."""
    return REGISTERED.names()


def _named(name: str) -> type[Sampler]:
    """The class of a name; that of an entry point gets its name when it is loaded."""
    kind = REGISTERED[name]
    return kind if kind.spec_name == name else register(name)(kind)


def parse_sampler(text: str) -> Sampler:
    """Return the sampler of a text such as "threshold:48"."""
    written = text.strip()
    sampled = _SAMPLE.fullmatch(written)
    if sampled is not None and "e+" not in written:
        kept = parse_sampler(sampled["kept"]) if sampled["kept"] else None
        return Keep(kept, int(sampled["sample"]), weighted=sampled["plain"] is None)
    name, _, arguments = written.partition(":")
    if name not in REGISTERED:
        raise BadInput(
            f"There is no sampler {text!r}; write one of {', '.join(sampler_names())} and its "
            "size, such as threshold:48, top-k:64 or top-k:64+192."
        )
    return _named(name).from_arguments(arguments)


def sampler_spec(sampler: Sampler) -> str:
    """Return the text that `parse_sampler` reads as this sampler."""
    if isinstance(sampler, Keep):
        kept = "" if sampler.kept is None else sampler_spec(sampler.kept)
        return f"{kept}+{sampler.sample}{'' if sampler.weighted else 'plain'}"
    name = sampler.spec_name
    if name is None or REGISTERED.get(name) is not type(sampler):
        raise BadInput(
            f"{sampler!r} cannot be written: give its class a name with "
            "@attnlimit.samplers.register(...)."
        )
    return f"{name}:{sampler.arguments()}"
