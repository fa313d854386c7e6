"""How fast is it? The suites of the benchmarks, as they were timed, misses and all."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table
from evidence.cells import numbers
from evidence.studies import BENCHMARKS, Study


def _ratios(suite: Study) -> pd.DataFrame:
    rows = suite.table
    return pd.DataFrame(
        {
            "what": rows["what"].str.replace("|", r"\|"),
            "measured": pd.Series(numbers(rows["measured"])) + " " + rows["unit"],
            "baseline": pd.Series(numbers(rows["baseline"])) + " " + rows["unit"],
            "ratio": numbers(rows["ratio"]),
            "target": rows["target"].map("{:.3g}".format),
            "met": rows["met"].map({True: "yes", False: "**no**"}),
        }
    )


@table(BENCHMARKS + "startup")
def startup_ratios(suite: Study) -> pd.DataFrame:
    """How soon it starts."""
    return _ratios(suite)


@table(BENCHMARKS + "theory")
def theory_ratios(suite: Study) -> pd.DataFrame:
    """Exact laws against draws."""
    return _ratios(suite)


@table(BENCHMARKS + "montecarlo")
def montecarlo_ratios(suite: Study) -> pd.DataFrame:
    """The engine against fused attention and a plain loop."""
    return _ratios(suite)


@table(BENCHMARKS + "models")
def models_ratios(suite: Study) -> pd.DataFrame:
    """Curves of all heads against forward passes and draws."""
    return _ratios(suite)


@table(BENCHMARKS + "output")
def output_ratios(suite: Study) -> pd.DataFrame:
    """Plans against passes of the model."""
    return _ratios(suite)


@table(BENCHMARKS + "sparse")
def sparse_ratios(suite: Study) -> pd.DataFrame:
    """Solvers against research code and the clock."""
    return _ratios(suite)
