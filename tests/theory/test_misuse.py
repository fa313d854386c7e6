"""Public functions of theory, tokens and heads give a right answer or one clear error.

Every argument of every call is replaced, one at a time, by what it must not be.
"""

import numpy as np
import pytest

import attnlimit as al

HEAD = al.Head(0.5 * np.eye(2))
TOKENS = al.Gaussian(dim=2)
X = np.array([[0.5, -1.0], [1.0, 0.3]])
N = [5, 300]
SCORES = np.array([[0.3, 1.0, -0.5]])

WRONG_ARRAYS = {
    "complex": np.array([[1 + 2j, 0.5]]),
    "strings": [["1.0", "2.0"]],
    "nan": [[np.nan, 1.0]],
    "infinite": [[np.inf, 1.0]],
    "empty": np.zeros((0, 2)),
    "three axes": np.ones((2, 2, 2)),
    "other width": np.ones((2, 3)),
    "ragged": [[1.0, 2.0], [1.0]],
    "none": None,
    "object": [[object(), 1.0]],
    "huge": [[1e200, 1.0]],
}
WRONG_COUNTS = {
    "complex": [5 + 1j],
    "strings": ["5"],
    "nan": [np.nan],
    "empty": [],
    "one": [1],
    "negative": [-3],
    "fraction": [5.5],
    "two axes": [[5, 6]],
    "none": None,
    "huge": [10**30],
}
WRONG_NUMBERS = {
    "complex": 1 + 2j,
    "string": "0.5",
    "nan": np.nan,
    "infinite": np.inf,
    "negative": -1.0,
    "none": None,
    "array": [0.5, 0.5, 0.5],
    "huge": 1e200,
}
WRONG_OBJECTS = {"none": None, "string": "tokens", "array": np.eye(2), "class": al.Gaussian}

CALLS = {
    "head A": (lambda v: al.Head(v), {"three axes", "complex", "strings", "nan", "huge", "none"}),
    "head V": (lambda v: al.Head(np.eye(2), v), set(WRONG_ARRAYS) - {"none"}),
    "projections": (
        lambda v: al.Head.from_projections(v, np.eye(2), np.eye(2)),
        set(WRONG_ARRAYS) - {"other width"},
    ),
    "head queries": (lambda v: HEAD(v, X), set(WRONG_ARRAYS) - {"empty", "three axes"}),
    "head keys": (lambda v: HEAD(X, v), set(WRONG_ARRAYS)),
    "limit": (lambda v: al.limit(HEAD, TOKENS)(v), set(WRONG_ARRAYS) - {"empty", "three axes"}),
    "pointwise x": (lambda v: al.pointwise_error(HEAD, TOKENS, v, N), set(WRONG_ARRAYS)),
    "delta x": (
        lambda v: al.pointwise_error(HEAD, TOKENS, v, N, method="delta"),
        set(WRONG_ARRAYS),
    ),
    "hardmax x": (lambda v: al.hardmax_error(HEAD, TOKENS, v, N), set(WRONG_ARRAYS)),
    "fluctuation x": (
        lambda v: al.fluctuation(HEAD, TOKENS, v),
        set(WRONG_ARRAYS) - {"empty", "three axes"},
    ),
    "influence y": (lambda v: al.mean_influence(HEAD, TOKENS, v), set(WRONG_ARRAYS)),
    "empirical points": (lambda v: al.Empirical(v), set(WRONG_ARRAYS) - {"other width"}),
    "empirical weights": (lambda v: al.Empirical(X, v), set(WRONG_ARRAYS) - {"none"}),
    "gaussian cov": (lambda v: al.Gaussian(v), set(WRONG_ARRAYS)),
    "gaussian mean": (lambda v: al.Gaussian(np.eye(2), mean=v), set(WRONG_ARRAYS) - {"none"}),
    "mixture weights": (lambda v: al.Mixture(v, [TOKENS, TOKENS]), set(WRONG_ARRAYS)),
    "cgf": (lambda v: TOKENS.cgf(v), set(WRONG_ARRAYS) - {"empty", "three axes"}),
    "probabilities": (
        lambda v: al.kept_error(HEAD, al.Empirical(X), X, v),
        set(WRONG_ARRAYS),
    ),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name, (_, wrongs) in CALLS.items() for wrong in sorted(wrongs)],
)
def test_wrong_arrays_are_refused(name, wrong):
    call, _ = CALLS[name]
    with pytest.raises(al.BadInput) as caught:
        call(WRONG_ARRAYS[wrong])
    assert len(str(caught.value).split()) <= 45


COUNTED = {
    "pointwise": lambda n: al.pointwise_error(HEAD, TOKENS, X, n),
    "predict": lambda n: al.predict(HEAD, TOKENS, "pointwise", n),
    "hardmax": lambda n: al.hardmax_error(HEAD, TOKENS, X, n),
    "uniform bound": lambda n: al.uniform_bound(HEAD, TOKENS, 0.5, n),
}


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("wrong", WRONG_COUNTS)
def test_wrong_counts_are_refused(name, wrong):
    with pytest.raises(al.BadInput):
        COUNTED[name](WRONG_COUNTS[wrong])


NUMBERS = {
    "scaled": (lambda v: HEAD.scaled(v), {"negative", "array"}),
    "projection scale": (
        lambda v: al.Head.from_projections(np.eye(2), np.eye(2), np.eye(2), scale=v),
        {"negative", "none"},
    ),
    "radius": (lambda v: al.Sphere(3, v), set()),
    "half width": (lambda v: al.Cube(3, v), set()),
    "signs": (lambda v: al.Signs(3, v), set()),
    "laplace": (lambda v: al.Laplace(3, v), set()),
    "variance": (lambda v: al.Gaussian(dim=3, variance=v), set()),
    "dim": (lambda v: al.Ball(v), set()),
    "uniform radius": (lambda v: al.uniform_bound(HEAD, TOKENS, v, N), set()),
    "delta": (lambda v: al.uniform_bound(HEAD, TOKENS, 0.5, N, v), set()),
    "sigma": (lambda v: al.gaussian_law(v, [5, 6]), set()),
    "top k": (lambda v: al.TopK(v), set()),
    "threshold": (lambda v: al.Threshold(v), set()),
    "share": (lambda v: al.TopP(v), set()),
    "window": (lambda v: al.Window(v), set()),
    "iid": (lambda v: al.Iid(v), {"none"}),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(n, w) for n, (_, fine) in NUMBERS.items() for w in WRONG_NUMBERS if w not in fine],
)
def test_wrong_numbers_are_refused(name, wrong):
    with pytest.raises(al.BadInput):
        NUMBERS[name][0](WRONG_NUMBERS[wrong])


TAKING = {
    "limit": lambda h, t: al.limit(h, t),
    "horizon": lambda h, t: al.horizon(h, t),
    "rate": lambda h, t: al.rate(h, t, "mean"),
    "pointwise": lambda h, t: al.pointwise_error(h, t, X, N),
    "hardmax": lambda h, t: al.hardmax_error(h, t, X, N),
    "uniform": lambda h, t: al.uniform_bound(h, t, 1.0, N),
    "mean covariance": lambda h, t: al.mean_covariance(h, t),
    "influence": lambda h, t: al.mean_influence(h, t, X),
    "fluctuation": lambda h, t: al.fluctuation(h, t, X),
    "predict": lambda h, t: al.predict(h, t, "mean", N),
    "kept": lambda h, t: al.kept_error(h, t, X, [1.0, 1.0]),
}


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize("wrong", WRONG_OBJECTS)
def test_what_is_no_head_or_no_distribution_is_refused(name, wrong):
    with pytest.raises(al.BadInput):
        TAKING[name](HEAD, WRONG_OBJECTS[wrong])
    with pytest.raises(al.BadInput):
        TAKING[name](WRONG_OBJECTS[wrong], TOKENS)


MEASURES = [
    al.Gaussian(dim=2),
    al.Sphere(2),
    al.Ball(2),
    al.Cube(2),
    al.Signs(2),
    al.Empirical(X),
    al.Mixture([0.5, 0.5], [al.Gaussian(dim=2), al.Sphere(2)]),
]


@pytest.mark.parametrize("tokens", MEASURES, ids=repr)
@pytest.mark.parametrize("scale", [1e-40, 1e4, 1e40])
@pytest.mark.parametrize("name", ["limit", "horizon", "rate", "pointwise", "hardmax", "uniform"])
def test_extreme_heads_give_finite_numbers_or_an_error(tokens, scale, name):
    head = al.Head(scale * np.eye(2))
    try:
        result = TAKING[name](head, tokens)
    except al.AttnlimitError:
        return
    if name == "limit":
        result = result(X)
    for part in vars(result).values() if hasattr(result, "__dict__") else [result]:
        if isinstance(part, (float, np.ndarray)) and np.asarray(part).dtype.kind == "f":
            assert not np.isnan(part).any()
