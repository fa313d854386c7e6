"""Does a piece of work keep to one core, and give the others back?"""

import pytest
import torch
from threadpoolctl import threadpool_info

from attnlimit.budgets.head import head_budget
from attnlimit.budgets.terms import Terms
from attnlimit.cost import made_capture
from attnlimit.models.capture.captured import CapturedHead
from attnlimit.threads import one_thread


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_libraries_are_limited_and_let_go_again(two_threads):
    with one_thread():
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
    assert torch.get_num_threads() == 2


def test_a_head_is_budgeted_on_one_thread(two_threads, monkeypatch):
    seen = set()
    scores = CapturedHead.scores

    def counted(self, *given, **options):
        seen.add(torch.get_num_threads())
        return scores(self, *given, **options)

    monkeypatch.setattr(CapturedHead, "scores", counted)
    head_budget(made_capture(24, 4, causal=False)[0, 0], Terms(), queries=8)
    assert seen == {1}
    assert torch.get_num_threads() == 2
