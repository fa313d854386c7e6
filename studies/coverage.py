"""Do 95 % intervals hold the truth 95 times of 100? Two hundred seeds of all that measures.

The truth is the average of all seeds, and its own error is taken off. A statistic has the interval
of its curve, an experiment its measurement and as many of its standard errors as Student's law says
for its draws. A share is over all points of a row; its error is from the scatter between seeds. For
the table of docs/montecarlo.md:

    python studies/coverage.py            # 200 seeds, some ten minutes of one core
    python studies/coverage.py 50 heavy   # fewer seeds, and the rows whose name has a word
"""

import pickle
import sys
from importlib import import_module

import numpy as np
from scipy.stats import t as student

import attnlimit as al
from attnlimit.models import from_arrays
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.sweep import sweep
from attnlimit.reproduce import run
from attnlimit.reproduce.compare import TYPICAL
from attnlimit.reproduce.sparse.check import SETTINGS
from attnlimit.reproduce.temperatures import paper_head

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
WORDS = sys.argv[2:] or [""]
N = [12, 24, 48, 96]
RNG = np.random.default_rng(0)
CAPTURE = from_arrays(*RNG.standard_normal((3, 64, 8)), causal=False)
HEADS = {
    "Gaussian, d = 3": (al.Head(RNG.standard_normal((3, 3)) / 2), al.Gaussian(dim=3)),
    "Gaussian, d = 10, H = 0.62": (paper_head(10, 2), al.Gaussian(dim=10, variance=0.5)),
    "sphere, d = 5": (al.Head(3 * np.eye(5)), al.Sphere(5)),
}
NORMS = ("mean_norm", "covariance_norm", "covariance_operator_norm")
SAMPLERS = {
    "without replacement": al.WithoutReplacement(20),
    "top 4 and 16 drawn": al.Keep(al.TopK(4), 16),
    "threshold": al.Threshold(8.0),
}
CHECKED = [SETTINGS[k] for k in (1, 3, 6, 10, 13)]
# Settings, draws behind a standard error, and what is predicted, the same for every seed.
EXPERIMENTS = {
    "gaussian": (
        {"dim": 4, "scales": [2.0], "n": N, "replicates": 50, "block": 50},
        50,
        {"temperatures": ["predict", "token_features"]},
    ),
    "sphere": (
        {"dim": 4, "scales": [2.0], "n": N, "replicates": 50, "block": 50},
        50,
        {"temperatures": ["predict", "token_features"]},
    ),
    "hardmax": (
        {
            "cases": [["gaussian", 3], ["cube", 3]],
            "schedule_dim": 3,
            "n": [10, 100],
            "far": [1000],
            "replicates": 40,
            "block": 40,
        },
        40,
        {"hardmax": ["hardmax_error", "best_temperature", "schedule_error"]},
    ),
    "clt": (
        {"horizons": [0.3, 0.6], "n": [30, 300], "replicates": 200, "block": 200},
        200,
        {"clt": ["integrated_variance", "limit_deviation"]},
    ),
    "heavy": (
        {
            "horizons": [1.5],
            "n": [100, 300],
            "replicates": 200,
            "block": 200,
            "sigmas": [0.5, 2.0, 6.0],
            "frozen_n": [30, 300],
            "frozen_draws": 200,
            "laplace_n": [30, 300],
            "laplace_draws": 200,
        },
        200,
        {"heavy": ["gaussian_law", "_laplace_law"]},
    ),
    "critical-temperature": (
        {"cases": [[3, [0.3, 3.0]]], "n": [20, 50], "far": [1000], "replicates": 60, "block": 60},
        60,
        {"critical_temperature": ["sphere_regimes", "_predicted"]},
    ),
    "uniform": (
        {"cases": [["gaussian", 2, [0.5]]], "n": [100], "replicates": 12, "block": 12},
        12,
        {"uniform": ["uniform_bound"]},
    ),
    "sparse-curves": (
        {"dim": 30, "replicates": 8, "alphas": [1.0, 3.0], "lines": 0},
        8 + TYPICAL,
        {"sparse.curves": ["learning_curve", "query_alignment"]},
    ),
    "sparse-alignment": (
        {"dim": 40, "replicates": 8, "alphas": [2.0], "lines": 0},
        8,
        {"sparse.alignment": ["query_alignment"]},
    ),
    "sparse-capacity": (
        {
            "strengths": [2.0],
            "ratios": [0.6, 0.8, 1.0, 1.2, 1.4],
            "replicates": 12,
            "dims": {"attention": 12, "pooled": 12, "vectorized": 6},
        },
        1000,
        {"sparse.capacity": ["capacity"]},
    ),
    "sparse-oracle": (
        {"strengths": [1.0, 3.0], "draws": 1000},
        1000,
        {"sparse.oracle": ["bayes_error", "oracle_error"]},
    ),
    "sparse-separation": (
        {"lengths": [16], "draws": 1000},
        1000,
        {"sparse.separation": ["strength_needed"]},
    ),
    "sparse-phase": (
        {"strengths": [2.0], "alphas": [2.0], "checked": [[4.0, 2.0]], "dim": 30, "replicates": 8},
        8 + TYPICAL,
        {"sparse.phase": ["best_split", "readout"]},
    ),
    "sparse-length": (
        {"sharpnesses": [0.0, 2.0], "lengths": [10, 20], "dim": 40, "replicates": 8},
        8,
        {"sparse.length": ["readout", "transfer_error", "oracle_error"]},
    ),
    "sparse-check": (
        {"settings": CHECKED, "dims": [20, 40], "replicates": [8, 8]},
        8,
        {"sparse.check": ["readout"]},
    ),
}


def remember(module, name):
    """Let a prediction be computed once for the same arguments."""
    place = import_module(f"attnlimit.reproduce.{module}")
    function, known = getattr(place, name), {}

    def again(*arguments, **options):
        key = pickle.dumps((arguments, options))
        if key not in known:
            known[key] = function(*arguments, **options)
        return known[key]

    setattr(place, name, again)


def row(what, statistic, draws, found):
    """Print the coverage of intervals (value, error, low, high), one tuple of arrays a seed."""
    value, error, low, high = np.array(found).swapaxes(0, 1)
    kept = np.isfinite([value, low]).all(axis=(0, 2))  # a curve may be too noisy for a step
    random = value[kept].std(axis=0) > 0  # no error at all is no statistic
    value, error, low, high = (one[kept][:, random] for one in (value, error, low, high))
    truth, own = value.mean(axis=0), np.sqrt(1 - 1 / len(value))
    within = (own * (low - value) <= truth - value) & (truth - value <= own * (high - value))
    each = within.mean(axis=1)
    ratio = np.sqrt(value.var(axis=0, ddof=1) / (error**2).mean(axis=0))
    cells = [what, statistic, draws, value.shape[1], f"{np.median(ratio):.2f}"]
    share = f"{each.mean():.1%} ± {each.std() / np.sqrt(len(each)):.1%}"
    print("|", " | ".join(map(str, [*cells, share, len(value)])), "|", flush=True)


def of_curves(what, statistic, draws, curves):
    found = [(curve.value, curve.stderr, *curve.interval()) for curve in curves]
    row(what, statistic, draws, found)
    fits = []
    for curve in curves if len(curves[0].n) >= 4 else []:
        try:
            fits.append(al.fit_rate(curve))
        except al.UnreliableFit:  # a curve too noisy for a rate
            continue
    if fits:
        rates = [([fit.beta], [fit.stderr], *([end] for end in fit.interval())) for fit in fits]
        row(what, f"rate of {statistic}", draws, rates)


def statistics():
    for what, (head, tokens) in HEADS.items():
        names = ("mean", "covariance", *NORMS)
        seeds = [np.random.SeedSequence(seed) for seed in range(SEEDS)]
        found = [sweep(head, tokens, names, np.array(N), 50, seed) for seed in seeds]
        for name in names:
            of_curves(what, name, 50, [samples_curve(one[name]) for one in found])
        for name, options in (
            ("pointwise", {}),
            ("mean over the law of queries", {"queries": "law"}),
            ("moment", {"moment": np.tanh}),
        ):
            of_curves(
                what,
                name,
                50,
                [
                    al.measure(head, tokens, name.split()[0], N, 50, seed=seed, **options)
                    for seed in range(SEEDS)
                ],
            )


def many():
    """Where a draw is one set of tokens, and more draws of several."""
    for what in list(HEADS)[:2]:
        for draws, n in ((50, [1024]), (200, [1024]), (200, N)):
            curves = [
                al.measure(*HEADS[what], "covariance", n, draws, seed=seed) for seed in range(SEEDS)
            ]
            of_curves(f"{what}, n = {n[-1]}", "covariance", draws, curves)


def captured():
    for name in ("pointwise", "mean", "covariance", "mean_norm", "covariance_norm"):
        curves = [al.measure(CAPTURE, name, N, 50, seed=seed) for seed in range(SEEDS)]
        of_curves("captured head", name, 50, curves)
    for what, sampler in SAMPLERS.items():
        for name in ("pointwise", "mean"):
            curves = [
                al.measure(CAPTURE, name, replicates=50, seed=seed, sampler=sampler)
                for seed in range(SEEDS)
            ]
            of_curves(f"captured head, {what}", name, 50, curves)


def experiment(name):
    """Rows of an experiment, by what they measure."""
    settings, draws, predictions = EXPERIMENTS[name]
    for module, functions in predictions.items():
        for function in functions:
            remember(module, function)
    tables = []
    for seed in range(SEEDS):
        result = run(name, settings, seed=seed)
        rows = result.weighed
        if name == "sparse-capacity":
            rows = result.experiment.compared(result.config, rows)
        if name == "uniform":
            rows = rows.rename(columns={"sup": "measured"})
        if name == "clt":
            rows = rows.drop_duplicates(["horizon", "n"])
        tables.append(rows)
    first = tables[0]
    kind = next((k for k in ("statistic", "quantity", "kind") if k in first), None)
    for value in [None] if kind is None else first[kind].unique():
        parts = [t if kind is None else t[t[kind] == value] for t in tables]
        used = parts[0]["measured"].notna().to_numpy()
        if not used.any():
            continue
        found = []
        for part in parts:
            value_, error = (part[k].to_numpy(float)[used] for k in ("measured", "stderr"))
            reach = student.ppf(0.975, draws - 1) * error
            found.append((value_, error, value_ - reach, value_ + reach))
        row(f"`{name}`", value or "measured", settings.get("replicates", draws), found)


print("| tokens or experiment | statistic | draws | points | scatter / s.e. | coverage | seeds |")
print("|---|---|---|---|---|---|---|")
TASKS = {"statistics": statistics, "many": many, "captured": captured}
TASKS |= {name: lambda name=name: experiment(name) for name in EXPERIMENTS}
for name, task in TASKS.items():
    if any(word in name for word in WORDS):
        task()
