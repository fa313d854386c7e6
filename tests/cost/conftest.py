"""Rates of a machine that does not exist."""

import pytest

from attnlimit.cost import NAMED, Rates, counts
from attnlimit.cost.job import Job


@pytest.fixture(scope="session")
def rates():
    """Every unit takes a nanosecond, a shard ten milliseconds of the driver, a start 3 seconds."""
    works = [
        part
        for context in (64, 10**6)
        for name in ("minilm", "smollm2")
        for stage in Job(NAMED[name], context).stages()
        for part in stage.parts
    ]
    works += [("driver", counts.shard(1)), ("sweep", counts.sweep([100], 10, 4))]
    seconds: dict[str, dict[str, float]] = {}
    for stage, work in works:
        seconds.setdefault(stage, {}).update(dict.fromkeys(work.units, 1e-9))
    seconds["driver"]["shards"] = 0.01
    seconds["start"]["calls"] = 3.0
    return Rates(seconds, dict.fromkeys(seconds, 0.1), dict.fromkeys(seconds, 5), {})
