"""Types of the public calls, as pyright sees them; nothing runs this file."""

from typing import assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import attnlimit as al
from attnlimit import bags, sparse
from attnlimit.planning.head_budget import HeadBudget


def researcher() -> None:
    head, tokens = al.Head(1.5 * np.eye(8)), al.Gaussian(dim=8, variance=0.5)
    predicted = al.predict(head, tokens, "mean", [100, 300])
    measured = al.measure(head, tokens, "mean", [100, 300], replicates=100, seed=1)
    assert_type(predicted, al.Curve)
    assert_type(measured, al.Curve)
    assert_type(predicted.to_frame(), pd.DataFrame)
    assert_type(al.fit_rate(measured, predicted=predicted), al.RateFit)
    assert_type(al.limit(head, tokens)(np.zeros((3, 8))), NDArray[np.float64])
    assert_type(al.gaussian_law(3.0, [10, 10**12]).mse, NDArray[np.float64])
    assert_type(al.uniform_bound(head, tokens, 1.0, 1000, 0.05), al.UniformBound)


def long_context() -> None:
    model = al.models.load("minilm")
    capture = al.models.capture(model, "text")
    keep = al.Keep(al.TopK(64), sample=192, weighted=True)
    assert_type(al.predict(capture, "pointwise", layer=1, head=3, sampler=keep), al.Curve)
    assert_type(al.budget(capture[0, 0], epsilon=0.3, delta=0.1), HeadBudget)
    plan = al.models.plan(model, "text", cosine=0.99)
    assert_type(plan, al.Plan)
    assert_type(plan.mean_keys, float)
    with al.models.sampled_attention(model, {(0, 1): keep}, seed=0) as stats:
        assert_type(stats.mean_keys, float)


def rare_signals() -> None:
    task = sparse.SparseTask(length=10, signals=1, strength=5.0, prior=0.5)
    learnt = sparse.readout(task, alpha=2.0, model="attention", cosine=0.8, sharpness=1.0)
    assert_type(learnt, sparse.Readout)
    assert_type(sparse.oracle_error(task, "attention").value, float)
    pilot = bags.read_bags("bags")
    assert_type(bags.plan(pilot), bags.BagPlan)
    assert_type(bags.instances(pilot, bags.AttentionPooling(), n=[2]), bags.InstanceBudget)


def wrong() -> None:
    al.Gaussian(dims=8)  # pyright: ignore[reportCallIssue]
    al.predict(al.Head(np.eye(2)), al.Sphere(2))  # pyright: ignore[reportArgumentType]
    al.TopK("many")  # pyright: ignore[reportArgumentType]
