"""Heavy tails: what happens past the horizon 1, when frozen, and without sub-Gaussianity?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import levy_stable

from attnlimit.checks import Array
from attnlimit.head import Head
from attnlimit.montecarlo.engine import prefix_outputs
from attnlimit.montecarlo.independent import integrated_errors
from attnlimit.report.spec import FigureSpec, Panel, Series
from attnlimit.reproduce.experiment import Config, Experiment, Shard, halve_draws
from attnlimit.reproduce.rows import groups
from attnlimit.reproduce.temperatures import grid
from attnlimit.theory import gaussian_law, pointwise_error
from attnlimit.tokens import Gaussian, Laplace

TITLE = "Heavy tails: stable fluctuations past the horizon 1, freezing, and exponential tokens"
TAIL = 0.99
BOOTSTRAP = 200


def _config(paper: bool) -> Config:
    return {
        "seed": 0,
        "horizons": [1.5, 2.0, 3.0],
        "n": grid(1000, 1_000_000, 7) if paper else grid(1000, 100_000, 5),
        "replicates": 2000 if paper else 800,
        "block": 50,
        "sigmas": [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0],
        "frozen_n": [100, 10_000],
        "frozen_draws": 2000,
        "tilts": [0.2, 0.7, 1.5],
        "laplace_n": grid(100, 100_000, 7) if paper else grid(100, 30_000, 6),
        "laplace_draws": 4000 if paper else 2000,
    }


def _shards(config: Config) -> list[Shard]:
    work: list[Shard] = [
        {"kind": "stable", "horizon": H, "n": config["n"], "draws": config["block"], "stream": b}
        for H in config["horizons"]
        for b in range(config["replicates"] // config["block"])
    ]
    work.append(
        {
            "kind": "frozen",
            "sigmas": config["sigmas"],
            "n": config["frozen_n"],
            "draws": config["frozen_draws"],
        }
    )
    work += [
        {"kind": "laplace", "tilts": config["tilts"], "n": config["laplace_n"], "draws": 500}
        for _ in range(config["laplace_draws"] // 500)
    ]
    return work


def _compute(shard: Shard, seed: np.random.SeedSequence) -> pd.DataFrame:
    n = np.asarray(shard["n"], dtype=np.int64)
    return {"stable": _stable, "frozen": _frozen, "laplace": _laplace}[shard["kind"]](
        shard, n, seed
    )


def _stable(shard: Shard, n: NDArray[np.int64], seed: np.random.SeedSequence) -> pd.DataFrame:
    head, tokens = Head([[shard["horizon"]]]), Gaussian(dim=1)
    errors = integrated_errors(head, tokens, np.zeros(1), n, shard["draws"], seed)[..., 0]
    return pd.DataFrame(
        {
            "kind": "stable",
            "parameter": shard["horizon"],
            "n": np.tile(n, shard["draws"]),
            "value": np.abs(errors).ravel(),
        }
    )


def _frozen(shard: Shard, n: NDArray[np.int64], seed: np.random.SeedSequence) -> pd.DataFrame:
    rows = []
    for child in seed.spawn(shard["draws"]):
        drawn = np.random.default_rng(child).standard_normal(int(n[-1]))
        for size in n:
            keys = drawn[:size]
            for sigma in shard["sigmas"]:
                weights = np.exp(sigma * (keys - keys.max()))
                share = float((weights**2).sum() / weights.sum() ** 2)
                rows.append(("frozen", sigma, int(size), share))
    return pd.DataFrame(rows, columns=["kind", "parameter", "n", "value"])


def _laplace(shard: Shard, n: NDArray[np.int64], seed: np.random.SeedSequence) -> pd.DataFrame:
    """Outputs themselves: where the limit does not exist there is nothing to subtract."""
    tilts, tokens = np.asarray(shard["tilts"]), Laplace(1)
    queries = torch.from_numpy(tilts[None, :, None]).float()
    parts = []
    for child in seed.spawn(shard["draws"]):
        drawn = tokens.sample(int(n[-1]), np.random.default_rng(child))
        keys = torch.from_numpy(drawn[None]).float()
        outputs = prefix_outputs(queries, keys, n.tolist(), [len(tilts)] * len(n))
        parts.append(torch.cat(list(outputs), dim=1)[0, :, 0].numpy())
    return pd.DataFrame(
        {
            "kind": "laplace",
            "parameter": np.tile(tilts, shard["draws"] * len(n)),
            "n": np.tile(np.repeat(n, len(tilts)), shard["draws"]),
            "value": np.concatenate(parts),
        }
    )


def tail_ratio(values: Array) -> tuple[float, float]:
    """The 99 % quantile over the median, and its standard error by bootstrap."""
    rng = np.random.default_rng(0)

    def ratio(sample: Array) -> float:
        middle, high = np.quantile(sample, [0.5, TAIL])
        return float(high / middle)

    again = [ratio(rng.choice(values, len(values))) for _ in range(BOOTSTRAP)]
    return ratio(values), float(np.std(again))


def stable_ratio(index: float) -> float:
    """The same ratio for the size of a symmetric stable variable; index 2 is the normal law."""
    middle, high = levy_stable.ppf([0.75, (1 + TAIL) / 2], index, 0.0)
    return float(high / middle)


def _combine(config: Config, rows: pd.DataFrame) -> pd.DataFrame:
    parts = []
    for (kind, parameter, n), part in groups(rows, "kind", "parameter", "n"):
        values = part["value"].to_numpy()
        row = {"kind": kind, "parameter": parameter, "n": n, "draws": len(values)}
        if kind == "laplace":
            limit = Laplace(1).tilted_mean([[parameter]])[0, 0] if parameter < 1 else np.nan
            row |= {"output": np.median(values), "limit": limit}
            values = (values - limit) ** 2
        row |= {"value": values.mean(), "stderr": values.std(ddof=1) / np.sqrt(len(values))}
        row["median"] = np.median(values)
        if kind == "stable":
            row["tail_ratio"], row["tail_ratio_stderr"] = tail_ratio(values)
        parts.append(row)
    curves = pd.DataFrame(parts)
    curves["predicted"] = [_predicted(row) for row in curves.to_dict(orient="records")]
    return curves


def _predicted(row: dict[str, float]) -> float:
    if row["kind"] == "frozen":
        return float(gaussian_law(row["parameter"], int(row["n"])).participation)
    if row["kind"] == "laplace" and row["parameter"] < 1:
        law = pointwise_error(Head([[1.0]]), Laplace(1), [[row["parameter"]]], [int(row["n"])])
        return float(law.mse[0, 0])
    return float("nan")


def slope(part: pd.DataFrame, column: str) -> float:
    """Rate of a column against n."""
    return float(-np.polyfit(np.log(part["n"]), np.log(part[column]), 1)[0])


def slope_stderr(part: pd.DataFrame) -> float:
    """Standard error of the rate of the mean, points taken as independent (they share draws)."""
    x = np.log(part["n"].to_numpy(dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    relative = (part["stderr"] / part["value"]).to_numpy()
    return float(np.sqrt((weights**2 * relative**2).sum()))


def _table(config: Config, curves: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (kind, parameter), part in groups(curves, "kind", "parameter"):
        last = part.iloc[-1]
        if kind == "stable":
            rows.append(
                (
                    f"H = {parameter:g}: rate of E|error|",
                    f"{slope(part, 'value'):.3f} ± {slope_stderr(part):.3f}",
                    f"{1 / (1 + parameter**2):.3f} in the end",
                )
            )
            rows.append(
                (
                    f"H = {parameter:g}: 99 % quantile over median of |error|, n = {last['n']}",
                    f"{last['tail_ratio']:.2f} ± {last['tail_ratio_stderr']:.2f}",
                    f"normal {stable_ratio(2.0):.2f}, stable of index 1+1/H² "
                    f"{stable_ratio(1 + 1 / parameter**2):.1f} in the end",
                )
            )
        elif kind == "frozen":
            for item in part.itertuples():
                rows.append(
                    (
                        f"σ = {parameter:g}, n = {item.n}: E Σ p²",
                        f"{item.value:.4g} ± {item.stderr:.2g}",
                        f"{item.predicted:.4g}",
                    )
                )
        elif parameter < 1:
            rows.append(
                (
                    f"Laplace tokens, t = {parameter:g}/b, n = {last['n']}: mean squared error",
                    f"{last['value']:.4g} ± {last['stderr']:.2g}",
                    f"{last['predicted']:.4g}",
                )
            )
        else:
            first = part.iloc[0]
            rows.append(
                (
                    f"Laplace tokens, t = {parameter:g}/b: median output",
                    f"{first['output']:.3g} at n = {first['n']}, {last['output']:.3g} at "
                    f"n = {last['n']}",
                    "no limit: grows with log n",
                )
            )
    return pd.DataFrame(rows, columns=["what", "measured", "predicted"])


def _figure(config: Config, curves: pd.DataFrame) -> FigureSpec:
    stable, frozen = [], []
    for H, part in groups(curves[curves["kind"] == "stable"], "parameter"):
        label = f"H = {H:g}"
        middle = part.iloc[len(part) // 2]
        line = middle["value"] * (part["n"] / middle["n"]) ** (-1 / (1 + H**2))
        stable += [
            Series(part["n"], line, "line", f"n^(-1/(1+H²)), {label}", label),
            Series(part["n"], part["value"], "points", None, label, error=2 * part["stderr"]),
        ]
    for n, part in groups(curves[curves["kind"] == "frozen"], "n"):
        ratio = part["parameter"] / np.sqrt(2 * np.log(n))
        frozen += [
            Series(ratio, part["predicted"], "line", f"n = {n}", str(n)),
            Series(ratio, part["value"], "points", None, str(n), error=2 * part["stderr"]),
        ]
    frozen.append(Series([1, 1], [1e-4, 1], "dotted", "freezing", "edge"))
    errors, outputs = [], []
    for t, part in groups(curves[curves["kind"] == "laplace"], "parameter"):
        label = f"t = {t:g}/b"
        outputs.append(Series(part["n"], part["output"], "points", label, label))
        if t < 1:
            outputs.append(Series(part["n"], part["limit"], "line", None, label))
            errors += [
                Series(part["n"], part["predicted"], "line", f"{label}, exact law", label),
                Series(part["n"], part["value"], "points", None, label, error=2 * part["stderr"]),
            ]
    panels = (
        Panel(
            "past the horizon 1: E|mean error|, d = 1",
            "number of tokens n",
            "expected error",
            tuple(stable),
        ),
        Panel("freezing of the weights", "σ / √(2 log n)", "E Σ p²", tuple(frozen), "linear"),
        Panel(
            "Laplace tokens: mean squared error",
            "number of tokens n",
            "mean squared error",
            tuple(errors),
        ),
        Panel(
            "Laplace tokens: median output (lines: limit)",
            "number of tokens n",
            "output",
            tuple(outputs),
        ),
    )
    return FigureSpec(TITLE, panels, 2, "lines: predicted; points: measured, 2 standard errors")


EXPERIMENT = Experiment(
    "heavy",
    TITLE,
    _config,
    _shards,
    _compute,
    _combine,
    _figure,
    _table,
    split=halve_draws,
)
