"""What the laws say where nothing is drawn: computed when the tables are made, in some seconds."""

from __future__ import annotations

import numpy as np
import pandas as pd

import attnlimit as al
from attnlimit.reproduce.temperatures import paper_head
from evidence.blocks import table
from evidence.cells import number, once, power, setting

FAR = [100, 10**4, 10**6, 10**9, 10**12]


@table()
def delta_over_exact() -> pd.DataFrame:
    """How many times too large the delta method's error is, for Gaussian tokens."""
    sizes = [10, 100, 1000, 10**6, 10**9, 10**12]
    rows = []
    for sigma in (0.5, 1.0, 2.0, 4.0):
        exact = al.gaussian_law(sigma, sizes).mse
        delta = np.exp(sigma**2) * (1 + sigma**2) / np.array(sizes, dtype=float)
        rows.append([setting(sigma), *(number(one) for one in np.sqrt(delta / exact))])
    return pd.DataFrame(rows, columns=["σ", *(f"n = {power(n)}" for n in sizes)])


@table()
def sphere_constants() -> pd.DataFrame:
    """The worst query's constant C(R) on the unit sphere."""
    radii = [1, 4, 16, 64, 256]
    rows = []
    for dim in (3, 5, 9):
        bounds = [
            al.uniform_bound(al.Head(np.eye(dim)), al.Sphere(dim), radius, 10**12, 0.05)
            for radius in radii
        ]
        growth = f"{4 ** ((dim - 3) / 4):g}"
        rows.append([dim, *(number(one.constant, 4) for one in bounds), growth])
    return pd.DataFrame(
        rows, columns=["d", *(f"C({one})" for one in radii), "last step, predicted"]
    )


@table()
def best_of_n() -> pd.DataFrame:
    """Root mean squared error of the best-scoring token; in brackets its leading behaviour."""
    cases = {
        "Gaussian, d = 50": al.Gaussian(dim=50),
        "Sphere, d = 3": al.Sphere(3),
        "Sphere, d = 50": al.Sphere(50),
        "Cube, d = 3": al.Cube(3),
        "Cube, d = 50": al.Cube(50),
    }
    rows = []
    for name, tokens in cases.items():
        found = al.hardmax_error(al.Head(np.eye(tokens.dim)), tokens, np.ones(tokens.dim), FAR)
        both = found.to_frame()[["root", "predicted_root"]].to_numpy()
        rows.append(
            [name, *(f"{number(root, 4)} ({number(leading, 4)})" for root, leading in both)]
        )
    return pd.DataFrame(rows, columns=["tokens", *(f"n = {power(n)}" for n in FAR)])


@table()
def best_sharpness() -> pd.DataFrame:
    """The error at the best sharpness on the sphere, and that sharpness."""
    sizes = [1000, 10**6, 10**9, 10**12]
    rows = []
    for dim in (3, 5, 10, 50):
        head, tokens, query = al.Head(np.eye(dim)), al.Sphere(dim), np.eye(dim)[0]
        found = al.best_temperature(head, tokens, query, sizes).to_frame()
        cells = [f"{number(one.root)} (λ = {number(one.lam)})" for one in found.itertuples()]
        last = found.iloc[-1]
        rates = [number(last["local_rate"]), number(2 / (dim + 1)), number(last["hardmax_root"])]
        rows.append([dim, *cells, *rates])
    ends = ["local rate at 10¹²", "2/(d+1)", "hard maximum at 10¹²"]
    return pd.DataFrame(rows, columns=["d", *(f"n = {power(n)}" for n in sizes), *ends])


@table()
def gaussian_sharpness() -> pd.DataFrame:
    """The best sharpness for Gaussian tokens, over the one at which they freeze."""
    sizes = [1000, 10**6, 10**9, 10**12]
    head, tokens, query = al.Head(np.eye(5)), al.Gaussian(dim=5), np.eye(5)[0]
    found = al.best_temperature(head, tokens, query, sizes).to_frame()
    frozen = np.sqrt(2 * np.log(found["n"]))
    rows = [["λσ/√(2 log n)", *(number(one) for one in found["lam"] / frozen)]]
    rows += [["error", *(number(one) for one in found["root"])]]
    return pd.DataFrame(rows, columns=["at the best λ", *(f"n = {power(n)}" for n in sizes)])


@table()
def queries_by_regime() -> pd.DataFrame:
    """Shares of a head's queries in each regime, in the first paper's Gaussian setting."""
    tokens = al.Gaussian(dim=50, variance=0.1)
    asked = {5: [100], 20: [1000, 10**6], 30: [1000, 10**6], 50: [1000, 10**6, 10**12]}
    rows = []
    for scale, sizes in asked.items():
        head = paper_head(50, scale)
        found = al.regimes(head, tokens, sizes).to_frame()
        for one in found.itertuples():
            shares = [number(share, 2) for share in (one.gaussian, one.stable, one.frozen)]
            rows.append([scale, number(al.horizon(head, tokens), 2), power(one.n), *shares])
    shown = pd.DataFrame(rows, columns=["scale", "H", "n", "Gaussian", "stable", "frozen"])
    return shown.assign(scale=once(shown["scale"]), H=once(shown["H"]))
