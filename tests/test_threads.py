"""Work on one thread, and the number of threads after it."""

import pytest
import torch
from threadpoolctl import threadpool_info

from attnlimit.models.captured import CapturedHead
from attnlimit.planning.head_budget import Tolerance, captured_head_budget
from attnlimit.threads import one_thread
from every_sampler import made_capture


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
    captured_head_budget(made_capture(tokens=24)[0, 0], Tolerance(), queries=8)
    assert seen == {1}
    assert torch.get_num_threads() == 2
