"""`attnlimit bench`: the speed ratios held to, each against a named baseline."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import pandas as pd
import typer

from attnlimit.cli.show import print_json, print_table

Row = tuple[str, float, float, float, float]
"""Name, measured, baseline, ratio, target."""

BENCHES = {
    "theory": "attnlimit.cli.bench_theory",
    "montecarlo": "attnlimit.cli.bench_montecarlo",
    "sparse": "attnlimit.cli.bench_sparse",
    "models": "attnlimit.cli.bench_models",
    "scale": "attnlimit.cli.bench_scale",
}
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the root."""
    bench = typer.Typer(help="Speed against honest baselines, as ratios.", no_args_is_help=True)

    @bench.command("theory")
    def theory(json: AsJson = False) -> None:
        """Closed forms and exact laws against quadrature and simulation."""
        _run("theory", json)

    @bench.command("montecarlo")
    def montecarlo(json: AsJson = False) -> None:
        """The engine against torch's fused attention, and against the plain loop."""
        _run("montecarlo", json)

    @bench.command("sparse")
    def sparse(json: AsJson = False) -> None:
        """The sparse-token solvers against plain iterations."""
        _run("sparse", json)

    @bench.command("models")
    def models(json: AsJson = False) -> None:
        """Predictions for every head of a real model against forward passes and Monte Carlo."""
        _run("models", json)

    @bench.command("scale")
    def scale(json: AsJson = False) -> None:
        """Two cores against one, with processes and with Dask, and the cost of a shard."""
        _run("scale", json)

    app.add_typer(bench, name="bench")


def _run(name: str, json: bool) -> None:
    rows: Sequence[Row] = getattr(import_module(BENCHES[name]), f"bench_{name}")()
    frame = pd.DataFrame(rows, columns=["what", "measured", "baseline", "ratio", "target"])
    frame["met"] = [
        "yes" if r >= t else "no" for r, t in zip(frame.ratio, frame.target, strict=True)
    ]
    if json:
        print_json(frame)
    else:
        print_table(frame, f"attnlimit bench {name}")
