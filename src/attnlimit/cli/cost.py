"""`attnlimit cost`: what will it take, on how many workers, and will it fit in memory?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnlimit.cli.cost_options import Asked, ModelSizes
from attnlimit.cli.options import with_options
from attnlimit.cli.show import console, print_json, print_table, progress_bar
from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.cost.rates import Rates

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("cost")(with_options(cost))


def cost(
    model: ModelSizes,
    asked: Asked,
    workers: Annotated[int, typer.Option("--workers", help="Workers, of one core each.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict what plan, measure or a sweep will take, before it is run.

    Counts are exact; the seconds of each are fitted to timings of this machine, made the first time
    and kept.
    """
    asked.only_one()
    if asked.simulate is not None:
        _simulate(asked, json)
    elif asked.sweep is not None:
        _sweep(asked, workers, json)
    elif asked.check:
        _check(json)
    elif asked.limits:
        _limits(json)
    elif asked.calibrate:
        _show_rates(_calibrated(json), json)
    else:
        _estimate(model, workers, json)


def _rates(json: bool) -> Rates:
    """The rates kept here, measured if there are none."""
    from attnlimit.cost.calibrate import rates_file
    from attnlimit.cost.rates import Rates

    path = rates_file()
    return Rates.read(path) if path.exists() else _calibrated(json)


def _calibrated(json: bool) -> Rates:
    from attnlimit.cost.calibrate import calibrate, rates_file

    with progress_bar("measuring this machine", shown=not json) as progress:
        rates = calibrate(progress)
    rates.write(rates_file())
    return rates


def _show_rates(rates: Rates, json: bool) -> None:
    from attnlimit.cost.calibrate import rates_file

    frame = rates.to_frame()
    if json:
        print_json({"rates": frame, "machine": rates.machine, "file": rates_file()})
        return
    print_table(frame, f"core-nanoseconds of each unit: {rates.machine.get('processor', '')}")
    console().print(f"kept in {rates_file()}", soft_wrap=True, markup=False)


def _limits(json: bool) -> None:
    from attnlimit.cost.limits import limit_costs

    frame = limit_costs(_rates(json))
    if json:
        print_json(frame)
    else:
        print_table(frame, "exact laws beside the draws they replace")


def _check(json: bool) -> None:
    from attnlimit.cost.calibrate import check
    from attnlimit.cost.memory import check_memory
    from attnlimit.cost.real_run import check_cluster, check_measure

    rates = _rates(json)
    with progress_bar("checking the rates", shown=not json) as progress:
        seconds = check(rates, progress)
    memory, cluster, whole = check_memory(), check_cluster(rates), check_measure(rates)
    if json:
        print_json({"seconds": seconds, "memory": memory, "cluster": cluster, "measure": whole})
        return
    print_table(seconds, "seconds at sizes not used in the fit")
    print_table(memory, "peak memory of a fresh process, beyond the loaded model")
    print_table(cluster, "a real run, and the same one simulated from the shards of one worker")
    print_table(whole, "a whole command")


def _sweep(asked: Asked, workers: int, json: bool) -> None:
    import pandas as pd

    from attnlimit import checks
    from attnlimit.cost import counts

    try:
        sizes = sorted({int(part) for part in str(asked.sweep).split(",")})
    except ValueError:
        raise BadInput(
            f"--sweep takes numbers of tokens as 1000,5000; got {asked.sweep!r}."
        ) from None
    checks.token_counts(sizes, "--sweep")
    draws, dim = checks.count(asked.draws, "--draws"), checks.count(asked.dim, "--dim")
    count = checks.count(workers, "--workers")
    work = counts.sweep(sizes, draws, dim)
    seconds = _rates(json).of("sweep", work)
    row = {
        "n up to": sizes[-1],
        "draws": draws,
        "pairs": work.pairs,
        "GB of a draw": work.bytes / 1e9,
        "core-seconds": seconds,
        "shards of 20 s": -(-seconds // 20),
        f"hours on {count}": seconds / count / 3600,
    }
    if json:
        print_json(row)
    else:
        print_table(pd.DataFrame([row]), f"a sweep of {len(sizes)} n, d = {dim}, one temperature")


def _simulate(asked: Asked, json: bool) -> None:
    from attnlimit.cost import counts
    from attnlimit.cost.cluster import scaling, shard_seconds

    assert asked.simulate is not None
    seconds = shard_seconds(asked.simulate)
    rates = _rates(json)
    driver = rates.of("driver", counts.shard(0))
    start = rates.of("start", counts.Work(0, {"calls": 1.0}))
    frame = scaling(
        seconds,
        asked.shards,
        WORKERS,
        driver=driver,
        start=start,
        deaths=asked.deaths,
        seed=asked.seed,
    )
    if json:
        print_json({"driver": driver, "start": start, "shard": seconds.mean(), "table": frame})
        return
    print_table(
        frame,
        f"{asked.shards} shards of {seconds.mean():.3g} s on average, {1e3 * driver:.3g} ms of the "
        f"driver each, workers ready after {start:.3g} s",
    )


def _estimate(model: ModelSizes, workers: int, json: bool) -> None:
    from attnlimit import checks
    from attnlimit.cost.estimate import JOBS, estimate

    job = model.job()
    memory = None if model.memory is None else checks.positive(model.memory, "--memory")
    hours = None if model.hours is None else checks.positive(model.hours, "--hours")
    found = estimate(job, _rates(json), workers, model.shard_seconds)
    needed = {} if hours is None else {name: found.totals[name].workers_for(hours) for name in JOBS}
    if json:
        print_json(
            {
                "stages": found.to_frame(),
                "jobs": found.summary(),
                "workers_for_hours": needed,
                "fits": None
                if memory is None
                else {name: found.totals[name].bytes <= 1e9 * memory for name in JOBS},
            }
        )
        return
    shape = job.shape
    print_table(
        found.to_frame(),
        f"{shape.layers} layers of {shape.heads} heads, {shape.parameters:.3g} parameters, "
        f"{job.texts} x {job.context} tokens{', captured once and shared' * job.shared}",
    )
    print_table(found.summary())
    screen = console()
    for name in JOBS:
        total = found.totals[name]
        if memory is not None and total.bytes > 1e9 * memory:
            screen.print(
                f"{name}: does not fit: a worker needs {total.bytes / 1e9:.3g} GB, of which "
                f"{job.resident / 1e9:.3g} GB are weights and captures, and has {memory:g} GB.",
                soft_wrap=True,
            )
        if hours is not None:
            why = total.hindrance(hours)
            screen.print(
                f"{name}: no number of workers does it in {hours:g} h: {why}."
                if why
                else f"{name}: {needed[name]} workers do it in {hours:g} h.",
                soft_wrap=True,
            )
