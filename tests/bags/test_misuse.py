"""Wrong arguments of every public function of bags and sparse: BadInput, or a right answer."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attnlimit as al
from attnlimit.errors import AttnlimitError, BadInput
from attnlimit.sparse import SparseTask

pytest.importorskip("sklearn")
WRONG = [
    None,
    "3",
    "x",
    1 + 2j,
    np.nan,
    np.inf,
    -1,
    0,
    [],
    [1, 2],
    np.ones((2, 2)),
    object(),
    1e300,
]
TASK = SparseTask(4, 1, 3.0)


def finite(result):
    """Whether a result that was not refused has finite numbers."""
    numbers = (getattr(result, name, 0.0) for name in ("value", "test_error"))
    return all(map(np.isfinite, numbers))


CALLS = {
    "length": lambda x: al.sparse.bayes_error(SparseTask(x, 1, 2.0)),
    "signals": lambda x: al.sparse.oracle_error(SparseTask(4, x, 2.0), "pooled"),
    "strength": lambda x: al.sparse.oracle_error(SparseTask(4, 1, x), "pooled"),
    "prior": lambda x: al.sparse.oracle_error(SparseTask(4, 1, 2.0, x), "pooled"),
    "bayes task": lambda x: al.sparse.bayes_error(x),
    "bayes replicates": lambda x: al.sparse.bayes_error(SparseTask(4, 2, 2.0), replicates=x),
    "bayes points": lambda x: al.sparse.bayes_error(SparseTask(4, 2, 2.0), log2_points=x),
    "oracle task": lambda x: al.sparse.oracle_error(x),
    "oracle model": lambda x: al.sparse.oracle_error(TASK, x),
    "oracle replicates": lambda x: al.sparse.oracle_error(TASK, replicates=x),
    "alignment task": lambda x: al.sparse.query_alignment(x, 2.0),
    "alignment alpha0": lambda x: al.sparse.query_alignment(TASK, x),
    "alignment loss": lambda x: al.sparse.query_alignment(TASK, 2.0, x),
    "alignment lr_w": lambda x: al.sparse.query_alignment(TASK, 2.0, lr_w=x),
    "readout task": lambda x: al.sparse.readout(x, 2.0),
    "readout alpha": lambda x: al.sparse.readout(TASK, x, "pooled"),
    "readout model": lambda x: al.sparse.readout(TASK, 2.0, x),
    "readout cosine": lambda x: al.sparse.readout(TASK, 2.0, cosine=x, log2_points=8),
    "readout sharpness": lambda x: al.sparse.readout(TASK, 2.0, sharpness=x, log2_points=8),
    "readout ridge": lambda x: al.sparse.readout(TASK, 2.0, "pooled", ridge=x),
    "capacity task": lambda x: al.sparse.capacity(x),
    "capacity model": lambda x: al.sparse.capacity(TASK, x),
    "capacity sharpness": lambda x: al.sparse.capacity(TASK, sharpness=x, log2_points=8),
    "sample n": lambda x: TASK.sample(x, 3),
    "sample dim": lambda x: TASK.sample(3, x),
    "sample seed": lambda x: TASK.sample(3, 3, x),
    "curve": lambda x: al.sparse.learning_curve(TASK, x, "pooled"),
    "simulated alpha": lambda x: al.sparse.simulate_readout(TASK, x, "pooled", dim=5),
    "simulated dim": lambda x: al.sparse.simulate_alignment(TASK, 1.0, dim=x),
    "plan": lambda x: al.bags.plan(x),
    "plan list": lambda x: al.bags.plan([x]),
    "make": lambda x: al.bags.make_bags(x, [0, 1]),
    "make labels": lambda x: al.bags.make_bags([np.ones((2, 2))] * 2, x),
    "estimate": lambda x: al.bags.estimate(x),
    "read": lambda x: al.bags.read_bags(x),
    "instances": lambda x: al.bags.instances(x, al.bags.MeanPooling()),
    "instances pooling": lambda x: al.bags.instances([np.ones((3, 2))], x),
    "mean pooling": lambda x: al.bags.MeanPooling().fit(x, [0, 1]),
    "attention pooling": lambda x: al.bags.AttentionPooling(sharpness=x).fit(
        list(np.random.default_rng(0).standard_normal((6, 3, 2))), [0, 1] * 3
    ),
    "gated": lambda x: al.bags.GatedAttention(x, np.ones(2)),
    "scored": lambda x: al.bags.ScoredBags([x], [np.ones((2, 2))]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_wrong_arguments_are_refused_or_answered(name):
    for value in WRONG:
        try:
            result = CALLS[name](value)
        except (AttnlimitError, ValueError):  # scikit-learn's own checks raise ValueError
            continue
        assert finite(result), (name, value)


def test_zero_replicates_and_a_list_are_refused():
    with pytest.raises(BadInput, match="replicates"):
        al.sparse.bayes_error(SparseTask(4, 2, 2.0), replicates=0)
    with pytest.raises(BadInput, match="make_bags"):
        al.bags.plan([np.ones((2, 2))])
    with pytest.raises(BadInput, match="length"):
        al.sparse.readout(SparseTask(10**6), 2.0)


def test_bags_print_one_line_and_keep_their_labels():
    arrays = list(np.random.default_rng(0).standard_normal((6, 500, 4)))
    bags = al.bags.make_bags(arrays, ["tumor", "normal"] * 3)
    assert len(str(bags)) < 100
    assert bags.labels.tolist() == ["tumor", "normal"] * 3
    assert bags.signs.tolist() == [1, -1] * 3
    assert al.bags.make_bags(arrays, [0, 1] * 3).labels.tolist() == [0, 1] * 3
    swapped = al.bags.make_bags(arrays, ["cancer", "healthy"] * 3)
    assert swapped.classes == ("healthy", "cancer")
    chosen = al.bags.make_bags(arrays, ["a", "b"] * 3, positive="a")
    assert chosen.signs.tolist() == [1, -1] * 3


def test_a_pooling_whitens_by_the_negative_class_and_predicts_labels_as_given():
    X, y = SparseTask(6, 1, 6.0).sample(80, 4, seed=1)
    words = np.where(y > 0, "cancer", "healthy")
    plain = al.bags.AttentionPooling(sharpness=2.0).fit(list(X), y)
    named = al.bags.AttentionPooling(sharpness=2.0).fit(list(X), words)
    assert named.classes_.tolist() == ["cancer", "healthy"]
    expected = np.where(plain.predict(list(X)) > 0, "cancer", "healthy")
    assert (named.predict(list(X)) == expected).all()
    np.testing.assert_allclose(named.decision_function(list(X)), -plain.decision_function(list(X)))


THREADS = """
import numpy as np
import torch
from threadpoolctl import threadpool_info
import attnlimit as al
from attnlimit.bags import pilot
torch.set_num_threads(2)
seen = set()
misses = pilot.misses
def counted(*given):
    seen.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    seen.add(torch.get_num_threads())
    return misses(*given)
pilot.misses = counted
X, y = al.sparse.SparseTask(4, 1, 5.0).sample(16, 3)
al.bags.plan(al.bags.make_bags(list(X), y), [20])
assert seen == {1}, seen
assert torch.get_num_threads() == 2
"""


def test_small_matrices_use_one_thread_in_the_default_environment():
    import os

    path = str(Path(al.__file__).parents[1])
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={**kept, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-800:]
