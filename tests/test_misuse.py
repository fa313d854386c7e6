"""Wrong arguments of public functions: one clear refusal, or an answer; never another exception.

Every argument of a valid call is replaced by each bad value in turn.
"""

import warnings

import numpy as np
import pytest

import attnlimit as al

HEAD = al.Head(0.3 * np.eye(2))
TOKENS = al.Gaussian(dim=2)
TASK = al.sparse.SparseTask(length=4, signals=1, strength=3.0, prior=0.5)
N = np.array([10, 30, 100, 300, 1000])
CURVE = al.Curve("mean", N, 1 / N, np.full(5, 1e-5), "x")
X = np.array([[0.5, 0.2]])

CALLS = {
    "Gaussian": (al.Gaussian, {"cov": np.eye(2)}),
    "Gaussian of a dimension": (al.Gaussian, {"dim": 2, "variance": 0.5}),
    "Gaussian with a mean": (al.Gaussian, {"cov": np.eye(2), "mean": np.ones(2)}),
    "Sphere": (al.Sphere, {"dim": 3, "radius": 1.0}),
    "Ball": (al.Ball, {"dim": 3, "radius": 1.0}),
    "Cube": (al.Cube, {"dim": 3, "half_width": 1.0}),
    "Signs": (al.Signs, {"dim": 3, "scale": 1.0}),
    "Laplace": (al.Laplace, {"dim": 3, "scale": 1.0}),
    "Student": (al.Student, {"dim": 3, "df": 3.0}),
    "Mixture": (al.Mixture, {"weights": [0.5, 0.5], "components": [TOKENS, TOKENS]}),
    "Empirical": (al.Empirical, {"points": np.eye(3), "weights": [0.2, 0.3, 0.5]}),
    "Head": (al.Head, {"A": np.eye(2), "V": np.eye(2)}),
    "from_projections": (
        al.Head.from_projections,
        {"W_q": np.eye(2), "W_k": np.eye(2), "W_v": np.eye(2), "scale": 1.0},
    ),
    "scaled": (HEAD.scaled, {"lam": 2.0}),
    "attention": (HEAD, {"queries": X, "keys": np.eye(2)}),
    "limit": (
        lambda head, tokens, x: al.limit(head, tokens)(x),
        {"head": HEAD, "tokens": TOKENS, "x": X},
    ),
    "horizon": (al.horizon, {"head": HEAD, "tokens": TOKENS}),
    "gaussian_law": (al.gaussian_law, {"sigma": 1.0, "n": 10}),
    "pointwise_error": (
        al.pointwise_error,
        {"head": HEAD, "tokens": TOKENS, "x": X, "n": [10], "method": "exact"},
    ),
    "mean_covariance": (al.mean_covariance, {"head": HEAD, "tokens": TOKENS}),
    "rate": (al.rate, {"head": HEAD, "tokens": TOKENS, "statistic": "mean"}),
    "predict": (
        lambda head, **others: al.predict(head, **others),
        {"head": HEAD, "tokens": TOKENS, "statistic": "mean", "n": [50]},
    ),
    "measure": (
        lambda head, **others: al.measure(head, **others),
        {"head": HEAD, "tokens": TOKENS, "statistic": "mean", "n": [5], "replicates": 4, "seed": 0},
    ),
    "fit_rate": (al.fit_rate, {"curve": CURVE}),
    "uniform_bound": (
        al.uniform_bound,
        {"head": HEAD, "tokens": al.Sphere(2), "radius": 1.0, "n": [1000], "delta": 0.1},
    ),
    "hardmax_error": (
        al.hardmax_error, {"head": HEAD, "tokens": al.Sphere(2), "x": X[0], "n": [10]}
    ),
    "budget of a curve": (al.budget, {"target": CURVE, "epsilon": 0.5, "delta": 0.5}),
    "budget of a head": (
        al.budget, {"target": HEAD, "tokens": TOKENS, "x": X, "epsilon": 0.5, "delta": 0.2}
    ),
    "Iid": (al.Iid, {"n": 4}),
    "WithoutReplacement": (al.WithoutReplacement, {"n": 4}),
    "Window": (al.Window, {"width": 4, "random": 2}),
    "SinksAndRecent": (al.SinksAndRecent, {"sinks": 4, "recent": 8}),
    "TopK": (al.TopK, {"k": 4}),
    "TopP": (al.TopP, {"share": 0.9}),
    "Threshold": (al.Threshold, {"c": 8.0, "proxy": "4bit", "floor": 0.1}),
    "TwoLevel": (al.TwoLevel, {"c": 8.0, "floor": 0.1}),
    "Keep": (al.Keep, {"kept": al.TopK(2), "sample": 4}),
    "Quantize": (al.Quantize, {"keys": 8, "values": 4, "group": 32, "per": "row"}),
    "Evict": (al.Evict, {"keep": 0.5}),
    "SparseTask": (
        al.sparse.SparseTask, {"length": 4, "signals": 1, "strength": 3.0, "prior": 0.5}
    ),
    "sample": (TASK.sample, {"n": 4, "dim": 6, "seed": 0}),
    "query_alignment": (al.sparse.query_alignment, {"task": TASK, "alpha0": 1.0}),
    "readout": (
        al.sparse.readout,
        {"task": TASK, "alpha": 2.0, "model": "attention", "cosine": 0.8, "sharpness": 1.0},
    ),
    "capacity": (
        al.sparse.capacity, {"task": TASK, "model": "attention", "cosine": 0.8, "sharpness": 1.0}
    ),
    "oracle_error": (al.sparse.oracle_error, {"task": TASK, "model": "pooled"}),
    "bayes_error": (al.sparse.bayes_error, {"task": TASK, "replicates": 100}),
}  # fmt: skip
BAD = {
    "nothing": None,
    "text": "three",
    "numbers as text": ["1", "2"],
    "an empty list": [],
    "three dimensions": np.zeros((2, 2, 2)),
    "NaN": np.nan,
    "an array with NaN": np.array([[np.nan, 1.0], [0.0, 1.0]]),
    "complex numbers": np.array([[1j, 0], [0, 1]]),
    "infinity": np.inf,
    "a huge number": 1e300,
    "a negative number": -1,
    "zero": 0,
    "true": True,
    "an object": object(),
    "a ragged list": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("name", CALLS)
def test_every_valid_call_is_valid(name):
    call, arguments = CALLS[name]
    call(**arguments)


CASES = [(name, argument) for name, (_, given) in CALLS.items() for argument in given]


@pytest.mark.parametrize(("name", "argument"), CASES, ids=lambda case: str(case))
def test_a_wrong_argument_is_refused_in_a_sentence(name, argument):
    call, arguments = CALLS[name]
    for what, value in BAD.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                call(**(arguments | {argument: value}))
            except al.AttnlimitError as error:
                text = str(error)
                assert text.strip(), f"{name}: {argument} = {what} is refused without a word"
            except Exception as error:
                pytest.fail(f"{name}: {argument} = {what} raises {type(error).__name__}: {error}")


NUMERIC = [
    (name, argument)
    for name, argument in CASES
    if argument
    not in ("tokens", "head", "task", "components", "kept", "model", "statistic", "curve", "target",
            "method", "per", "proxy", "keys", "values", "seed", "lam", "x", "mean", "V")
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument"), NUMERIC, ids=lambda case: str(case))
@pytest.mark.parametrize("what", ["text", "NaN", "complex numbers", "an object"])
def test_what_is_no_number_is_refused(name, argument, what):
    call, arguments = CALLS[name]
    with pytest.raises(al.AttnlimitError):
        call(**(arguments | {argument: BAD[what]}))
