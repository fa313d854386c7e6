from types import SimpleNamespace

import pytest

import attnlimit as al
from attnlimit.bags import instance_budget as search

BAGS = [SimpleNamespace(scores=range(20), log_odds=0.0, whole=0.0)]


@pytest.mark.parametrize(
    ("changes", "enough"),
    [
        (lambda size: 1 / size, 100),
        (lambda size: 0.5 if 3 <= size < 37 else 0.0, 37),  # few change it less often than some
        (lambda size: 0.0, 2),
        (lambda size: 1.0, None),
    ],
)
def test_more_than_what_is_enough_is_enough_too(changes, enough, monkeypatch):
    monkeypatch.setattr(search, "decision_changes", lambda sampler, *_: changes(sampler.k))
    assert search.smallest_enough(al.TopK(1), BAGS, 0.01) == enough
