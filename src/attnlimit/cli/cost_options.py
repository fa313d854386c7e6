"""What can be asked of `attnlimit cost`? A model's sizes, a sweep, this machine, a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnlimit.errors import BadInput

if TYPE_CHECKING:
    from attnlimit.cost.job import Job

MODEL, SWEEP, MACHINE, CLUSTER = "A model", "A sweep", "This machine", "A cluster, simulated"


@dataclass(frozen=True)
class ModelSizes:
    """Which model, at what context."""

    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            help="Sizes of a known model: minilm, smollm2, llama-8b, llama-70b.",
            rich_help_panel=MODEL,
        ),
    ] = None
    layers: Annotated[
        int | None, typer.Option("--layers", help="Layers.", rich_help_panel=MODEL)
    ] = None
    heads: Annotated[
        int | None, typer.Option("--heads", help="Heads of a layer.", rich_help_panel=MODEL)
    ] = None
    kv_heads: Annotated[
        int | None,
        typer.Option("--kv-heads", help="Key-value heads; as heads.", rich_help_panel=MODEL),
    ] = None
    head_dim: Annotated[
        int | None, typer.Option("--head-dim", help="Numbers in a key.", rich_help_panel=MODEL)
    ] = None
    parameters: Annotated[
        float | None,
        typer.Option("--parameters", help="Parameters, as 70e9.", rich_help_panel=MODEL),
    ] = None
    two_sided: Annotated[
        bool,
        typer.Option("--two-sided", help="Every token sees all others.", rich_help_panel=MODEL),
    ] = False
    context: Annotated[
        int, typer.Option("--context", help="Tokens of a text.", rich_help_panel=MODEL)
    ] = 512
    queries: Annotated[
        int,
        typer.Option("--queries", help="Queries budgeted for each head.", rich_help_panel=MODEL),
    ] = 128
    parts: Annotated[
        int, typer.Option("--parts", help="Stretches of text.", rich_help_panel=MODEL)
    ] = 4
    replicates: Annotated[
        int, typer.Option("--replicates", help="Draws of the referee.", rich_help_panel=MODEL)
    ] = 100
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="What if workers captured together and shared it, and heads could be cut.",
            rich_help_panel=MODEL,
        ),
    ] = False
    shard_seconds: Annotated[
        float,
        typer.Option("--shard-seconds", help="Of a shard, with --shared.", rich_help_panel=MODEL),
    ] = 20.0
    memory: Annotated[
        float | None,
        typer.Option("--memory", help="GB that a worker has.", rich_help_panel=MODEL),
    ] = None
    hours: Annotated[
        float | None,
        typer.Option("--hours", help="Say how many workers do it in this.", rich_help_panel=MODEL),
    ] = None

    def job(self) -> Job:
        """Return the job that is described."""
        from attnlimit.cost.job import Job

        return Job(
            self._shape(), self.context, self.queries, self.parts, self.replicates, self.shared
        )

    def _shape(self) -> Any:
        from attnlimit.cost.shape import NAMED, Shape

        given = {
            "--layers": self.layers,
            "--heads": self.heads,
            "--head-dim": self.head_dim,
            "--parameters": self.parameters,
        }
        if self.like is not None:
            if any(value is not None for value in (*given.values(), self.kv_heads)):
                raise BadInput("Give --like or the sizes of a model, not both.")
            if self.like not in NAMED:
                raise BadInput(f"--like must be one of {', '.join(NAMED)}; got {self.like!r}.")
            return NAMED[self.like]
        missing = [name for name, value in given.items() if value is None]
        if len(missing) == len(given):
            return NAMED["minilm"]
        if missing:
            raise BadInput(f"A model's sizes also need {', '.join(missing)}; or take --like.")
        kv_heads = self.heads if self.kv_heads is None else self.kv_heads
        return Shape(
            self.layers, self.heads, kv_heads, self.head_dim, self.parameters,  # type: ignore[arg-type]
            causal=not self.two_sided,
        )  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What else can be asked."""

    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure this machine's rates again.", rich_help_panel=MACHINE
        ),
    ] = False
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Predicted beside measured at larger sizes.", rich_help_panel=MACHINE
        ),
    ] = False
    limits: Annotated[
        bool,
        typer.Option(
            "--limits",
            help="The exact law up to 10^12 tokens, and what draws would take.",
            rich_help_panel=MACHINE,
        ),
    ] = False
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep", help="Draws at these n instead: 1000,5000,30000.", rich_help_panel=SWEEP
        ),
    ] = None
    draws: Annotated[int, typer.Option("--draws", help="Of a sweep.", rich_help_panel=SWEEP)] = 400
    dim: Annotated[
        int, typer.Option("--dim", help="Of a sweep's tokens.", rich_help_panel=SWEEP)
    ] = 50
    simulate: Annotated[
        Path | None,
        typer.Option(
            "--simulate",
            help="1 to 1024 workers on shards like those of this run folder.",
            rich_help_panel=CLUSTER,
        ),
    ] = None
    shards: Annotated[
        int, typer.Option("--shards", help="Shards to simulate.", rich_help_panel=CLUSTER)
    ] = 100_000
    deaths: Annotated[
        float,
        typer.Option("--deaths", help="Of a worker, in an hour.", rich_help_panel=CLUSTER),
    ] = 0.0
    seed: Annotated[int, typer.Option("--seed", help="Of a simulation.")] = 0

    def only_one(self) -> None:
        """Refuse two questions at once."""
        asked = {
            "--calibrate": self.calibrate,
            "--check": self.check,
            "--limits": self.limits,
            "--sweep": self.sweep is not None,
            "--simulate": self.simulate is not None,
        }
        said = [name for name, wanted in asked.items() if wanted]
        if len(said) > 1:
            raise BadInput(f"{' and '.join(said)} are different questions; ask one at a time.")
