"""Coverage of 95 % intervals over two hundred seeds.

The truth is the average of all seeds, and its own error is taken off. A statistic has the interval
of its curve, an experiment Student's for its draws about what it measures, bent where its rows
state a skewness. A share is over all points of a row; its error is from the scatter between seeds.

    python studies/interval_coverage.py statistics    # a part, one of PARTS, in minutes
    python studies/interval_coverage.py synthetic 50   # fewer seeds
"""

import json
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib import import_module

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit import intervals
from attnlimit.curve import Curve
from attnlimit.models import from_arrays
from attnlimit.reproduce import Result, run
from attnlimit.reproduce.compare import ROUNDING, SKEWNESS, shared_scatter
from attnlimit.reproduce.documents import passage
from attnlimit.reproduce.temperatures import paper_head
from attnlimit.simulate.measure import samples_curve
from attnlimit.simulate.sweep import sweep
from covered import MODELS, OUTPUTS, SEPARABLE, SYNTHETIC, TESTED, TRAINED, Counted, N
from tables import PROJECT, write_tables

DRAWS = 50
RNG = np.random.default_rng(0)
CAPTURE = from_arrays(*RNG.standard_normal((3, 64, 8)), causal=False)
HEADS = {
    "Gaussian, d = 3": (al.Head(RNG.standard_normal((3, 3)) / 2), al.Gaussian(dim=3)),
    "Gaussian, d = 10, H = 0.62": (paper_head(10, 2), al.Gaussian(dim=10, variance=0.5)),
    "sphere, d = 5": (al.Head(3 * np.eye(5)), al.Sphere(5)),
}
SWEPT = ("mean", "covariance", "mean_norm", "covariance_norm")
SAMPLERS = {
    "without replacement": al.WithoutReplacement(20),
    "top 4 and 16 drawn": al.Keep(al.TopK(4), 16),
    "threshold": al.Threshold(8.0),
}
Rows = Iterator[dict[str, object]]


def counted(named: dict[str, object], of: str, ends: list[tuple]) -> Rows:
    """Say how often intervals hold the truth, from (value, stderr, low, high) of every seed.

    Each is an array over the points. A seed without a value everywhere is left out, and so is a
    point at which nothing is random.
    """
    given = np.array(ends, dtype=float).swapaxes(0, 1)
    given = given[:, np.isfinite(given).all(axis=(0, 2))]
    random = given[0].std(axis=0) > ROUNDING * np.abs(given[0]).mean(axis=0)
    if not random.any():
        return
    value, stderr, low, high = given[:, :, random]
    truth, own = value.mean(axis=0), np.sqrt(1 - 1 / len(value))
    above, below = truth - value > own * (high - value), truth - value < own * (low - value)
    each = 1 - (above | below).mean(axis=1)
    ratio = np.sqrt(value.var(axis=0, ddof=1) / (stderr**2).mean(axis=0))
    yield {
        **named,
        "of": of,
        "points": value.shape[1],
        "seeds": len(value),
        "ratio": float(np.median(ratio)),
        "coverage": float(each.mean()),
        "coverage_stderr": float(each.std(ddof=1) / np.sqrt(len(each))),
        "truth_above": float(above.mean()),
        "truth_below": float(below.mean()),
    }


def of_curves(what: str, statistic: str, curves: list[Curve]) -> Rows:
    """Count values, and the rates that are fitted to them; a curve may be too noisy for a rate."""
    named = {"what": what, "statistic": statistic, "draws": curves[0].replicates}
    values = [(curve.value, curve.stderr, *curve.interval()) for curve in curves]
    yield from counted(named, "value", values)
    rates = []
    for curve in curves if len(curves[0].n) >= 4 else []:
        with suppress(al.UnreliableFit):
            fit = al.fit_rate(curve)
            rates.append(tuple([entry] for entry in (fit.beta, fit.stderr, *fit.interval())))
    if rates:
        yield from counted(named, "rate", rates)


def statistics(seeds: int) -> Rows:
    """Every statistic of a head, at few tokens."""
    for what, (head, tokens) in HEADS.items():
        starts = [np.random.SeedSequence(seed) for seed in range(seeds)]
        results = [sweep(head, tokens, SWEPT, np.array(N), DRAWS, start) for start in starts]
        for name in SWEPT:
            yield from of_curves(what, name, [samples_curve(result[name]) for result in results])
        measure = partial(al.measure, head, tokens, "pointwise", N, DRAWS)
        yield from of_curves(what, "pointwise", [measure(seed=seed) for seed in range(seeds)])


def many(seeds: int) -> Rows:
    """The most skewed statistic with more tokens, with more draws, and in the paper's setting."""
    three, ten, _, fifty = known = HEADS | {
        "Gaussian, d = 50, H = 0.98": (paper_head(50, 30), al.Gaussian(dim=50, variance=0.1))
    }
    for what, draws, n in (
        (three, 50, [1024]),
        (three, 50, [2048]),
        (three, 200, N),
        (ten, 50, [1024]),
        (ten, 200, N),
        (fifty, 50, [50, 100, 200, 400]),
    ):
        measure = partial(al.measure, *known[what], "covariance", n, draws)
        curves = [measure(seed=seed) for seed in range(seeds)]
        yield from of_curves(f"{what}, n = {n[-1]}", "covariance", curves)


def captured(seeds: int) -> Rows:
    """A captured head, with keys drawn and with samplers."""
    for name in ("pointwise", *SWEPT[:4]):
        curves = [al.measure(CAPTURE, name, N, DRAWS, seed=seed) for seed in range(seeds)]
        yield from of_curves("captured head", name, curves)
    for what, sampler in SAMPLERS.items():
        for name in ("pointwise", "mean"):
            measure = partial(al.measure, CAPTURE, name, replicates=DRAWS, sampler=sampler)
            curves = [measure(seed=seed) for seed in range(seeds)]
            yield from of_curves(f"captured head, {what}", name, curves)


def cuts(seeds: int) -> Rows:
    """A cache cut after a prompt by rules that draw, as `eviction` measures and states it."""
    model, draws = al.models.load("smollm2"), 8
    ids = passage("smollm2", "sotu:Lincoln 1861", 112)
    rules = {f"{keep}": al.models.Evict(keep, 16) for keep in (0.5, 0.4, 0.3, 0.25)}

    def cut(seed):
        how = {"prompt": 96, "repeats": draws, "seed": seed}
        return {name: al.models.evaluate(model, ids, rule, **how) for name, rule in rules.items()}

    ends = []
    for seed in range(seeds):
        table = pd.DataFrame([value.__dict__ for value in cut(seed=seed).values()])
        table["stderr"] = [entry["kl"] for entry in table["stderr"]]
        value, skew = table["kl"].to_numpy(), table["skewness"].to_numpy()
        stderr = shared_scatter(table["kl"], table["stderr"], draws).to_numpy()
        ends.append((value, stderr, *intervals.interval(value, stderr, skew, draws - 1)))
    yield from counted({"what": "`eviction`", "statistic": "kl", "draws": draws}, "value", ends)


def experiments(which: dict[str, Counted], seeds: int) -> Rows:
    """Every experiment of a list."""
    for name, counts in which.items():
        yield from experiment(name, counts, seeds)


def experiment(name: str, counts: Counted, seeds: int) -> Rows:
    """Rows of an experiment, by what they measure."""
    for module, functions in counts.predicted.items():
        for function in functions:
            remember(module, function)
    tables = [compared_rows(name.split(",")[0], counts, seed) for seed in range(seeds)]
    kinds = [None] if counts.by is None else tables[0][counts.by].unique()
    for kind in kinds:
        parts = [table if kind is None else table[table[counts.by] == kind] for table in tables]
        used = parts[0][counts.measured].notna().to_numpy()
        if not used.any():
            continue
        draws = counts.draws if isinstance(counts.draws, int) else counts.draws[kind]
        ends = []
        for part in parts:
            value, stderr = (
                part[k].to_numpy(float)[used] for k in (counts.measured, counts.stderr)
            )
            skew = part[SKEWNESS].to_numpy(float)[used] if SKEWNESS in part else 0 * value
            ends.append((value, stderr, *intervals.interval(value, stderr, skew, draws - 1)))
        named = {"what": f"`{name}`", "statistic": kind or "", "draws": counts.drawn or draws}
        yield from counted(named, "value", ends)


@cache
def result_of(name: str, settings: str, seed: int) -> Result:
    """One run, which may be asked for twice."""
    own = PROJECT / "studies" / f"{name.replace('-', '_')}.py"
    return run(str(own) if own.exists() else name, json.loads(settings), seed=seed)


def compared_rows(name: str, counts: Counted, seed: int) -> pd.DataFrame:
    """Rows of one run, without those that measure the same again."""
    result = result_of(name, json.dumps(counts.settings), seed)
    rows = getattr(result, counts.rows)
    return rows.drop_duplicates(["horizon", "n"]) if name == "clt" else rows


def remember(module: str, name: str) -> None:
    """Let a prediction be computed once for the same arguments."""
    own = (PROJECT / "studies" / f"{module}.py").exists()
    place = import_module(module if own else f"attnlimit.reproduce.{module}")
    function, known = getattr(place, name), {}

    def again(*arguments, **options):
        key = pickle.dumps((arguments, options))
        if key not in known:
            known[key] = function(*arguments, **options)
        return known[key]

    setattr(place, name, again)


PARTS: dict[str, Callable[[int], Rows]] = {
    "statistics": statistics,
    "many": many,
    "captured": captured,
    "synthetic": partial(experiments, SYNTHETIC),
    "trained": partial(experiments, TRAINED),
    "tested": partial(experiments, TESTED),
    "separable": partial(experiments, SEPARABLE),
    "models": partial(experiments, MODELS),
    "outputs": partial(experiments, OUTPUTS),
    "cuts": cuts,
}

if __name__ == "__main__":
    part, *given = sys.argv[1:] or ["all"]
    if part not in (*PARTS, "all"):
        sys.exit(f"There is no part {part!r}; there are {', '.join(PARTS)} and all.")
    rows = []
    for name in PARTS if part == "all" else [part]:
        for row in PARTS[name](int(given[0]) if given else 200):
            print(row, flush=True)  # a part that is stopped has shown its rows
            rows.append(row)
    write_tables({"coverage" if part == "all" else f"coverage-{part}": pd.DataFrame(rows)})
