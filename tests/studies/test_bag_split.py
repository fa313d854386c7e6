import pytest

from attnlimit.errors import BadInput
from attnlimit.sparse import SparseTask, query_alignment, readout, simulate_protocol
from bag_split import best_split, end_to_end


def test_end_to_end_is_alignment_then_readout():
    task = SparseTask(10, 1, 5.0)
    whole = end_to_end(task, 2.0, 3.0, lr_w=1.0, lr_b=1.0, sharpness=2.0)
    aligned = query_alignment(task, 2.0)
    alone = readout(task, 3.0, cosine=aligned.cosine, sharpness=2.0)
    assert whole.test_error == pytest.approx(alone.test_error, abs=1e-9)
    with pytest.raises(BadInput, match="both"):
        end_to_end(task, 1.0, 1.0, lr_w=1.0)


def test_best_split_beats_an_even_one():
    task = SparseTask(10, 1, 4.0)
    best = best_split(task, 6.0, sharpness=2.0)
    even = end_to_end(task, 3.0, 3.0, sharpness=2.0)
    assert best.alpha0 + best.alpha1 == pytest.approx(6.0)
    assert best.test_error <= even.test_error + 2e-4


@pytest.mark.slow
def test_all_four_stages_on_drawn_bags():
    task = SparseTask(10, 1, 5.0)
    setting = {"beta": 0.5, "lr_q": 2.0 / query_alignment(task, 2.0, beta=0.5).sharpness}
    predicted = end_to_end(task, 2.0, 2.0, lr_w=1.0, lr_b=1.0, **setting)
    assert predicted.alignment.sharpness == pytest.approx(2.0)
    drawn = simulate_protocol(task, 2.0, 2.0, **setting, dim=300, replicates=10, seed=4)
    assert abs(drawn.mean["test_error"] - predicted.test_error) < (
        3 * drawn.stderr["test_error"] + 0.004
    )
