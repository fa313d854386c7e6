"""The explorer, a page of sliders over exact laws, from the tables in laws.json."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from scipy.stats import chi

import attnlimit
from attnlimit.report.page import document, escape, write_page
from attnlimit.sparse.task import SparseTask
from attnlimit.sparse.trained_readout import readout
from attnlimit.theory.one_query.gaussian import gaussian_law

HERE = Path(__file__).parent
SIGMAS = np.geomspace(0.01, 60.0, 72)
COUNTS = np.unique(np.geomspace(2, 10**9, 46).astype(np.int64))
DIMENSIONS = (1, 2, 3, 5, 8, 12, 20, 32, 50, 64, 100, 128)
QUERIES = 96
LENGTHS = (4, 10, 20, 40)
SIGNALS = (1, 2, 4)
STRENGTHS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
ALPHAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
COSINE = 0.9
SHARPNESS = 2.0
RIDGE = 0.01


def write_explorer(path: Path) -> Path:
    """Write the explorer page."""
    body = Template((HERE / "page.html").read_text()).substitute(
        cosine=f"{COSINE:g}",
        sharpness=f"{SHARPNESS:g}",
        footer=escape(
            f"attnlimit {attnlimit.__version__}. Gaussian tokens: attnlimit.gaussian_law at "
            f"{len(SIGMAS)} spreads and {len(COUNTS)} n, interpolated. Sparse signals: "
            f"attnlimit.sparse.trained_readout with logistic loss and ridge {RIDGE:g}."
        ),
    )
    data = json.loads((HERE / "laws.json").read_text())
    script = (HERE / "explorer.js").read_text()
    middles = (np.arange(QUERIES) + 0.5) / QUERIES
    data["law"]["lengths"] = {dim: chi.ppf(middles, dim) for dim in DIMENSIONS}
    return write_page(path, document("attnlimit explorer", body, data, [script]))


def tabulate() -> dict[str, Any]:
    """Compute the exact laws on their grids: the content of laws.json, in about a minute."""
    law = gaussian_law(SIGMAS[:, None], COUNTS[None, :])
    grid = LENGTHS, SIGNALS, STRENGTHS, ALPHAS
    shape = tuple(map(len, grid))
    return {
        "law": {
            "logSigma": np.log(SIGMAS),
            "n": COUNTS,
            "logMse": np.log(law.mse),
            "logParticipation": np.log(law.participation),
        },
        "sparse": {
            "length": LENGTHS,
            "signals": SIGNALS,
            "strength": STRENGTHS,
            "alpha": ALPHAS,
            "error": {
                model: np.reshape([sparse_error(model, *point) for point in product(*grid)], shape)
                for model in ("attention", "pooled", "vectorized")
            },
        },
    }


def sparse_error(model: str, length: int, signals: int, strength: float, alpha: float) -> float:
    """Exact test error of one model at one point of the grid."""
    task = SparseTask(length=length, signals=signals, strength=strength, prior=0.5)
    options: dict[str, Any] = {}
    if model == "attention":
        options = {"cosine": COSINE, "sharpness": SHARPNESS}
    return float(readout(task, alpha, model=model, ridge=RIDGE, **options).test_error)
