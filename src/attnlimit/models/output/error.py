"""How far does a model's output move when its heads read fewer keys? Predicted before it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlimit import checks
from attnlimit.checks import Array
from attnlimit.errors import BadInput
from attnlimit.models.capture.encode import encode, unwrap
from attnlimit.models.output.bias import bias_distance, is_biased
from attnlimit.models.output.heads import HeadErrors, head_errors
from attnlimit.models.output.target import Output, choose_target, third_order
from attnlimit.models.spend.assign import Samplers, describe, sampler_table
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result

WORDS = {"kl": "KL", "cosine_loss": "1 - cosine", "squared_error": "squared error"}
UNITS = {"kl": " nats", "cosine_loss": "", "squared_error": ""}
MAX_ROUGH = 0.25
"""Share of the variance that may come from queries where first order is not reliable."""


@dataclass(frozen=True, eq=False)
class OutputError(Result, Pictured):
    """Predicted distance between the outputs of the dense and of the thinned model.

    `contributions` adds up to `value`. The bias of all heads adds up before it is squared, so a
    head's share of it may be negative: it undoes what others do. Of samplers that draw nothing,
    or do not make up for what they leave out, the bias is that of one pass with expected outputs.
    """

    sampler: str
    measure: str  # "kl", "cosine_loss" or "squared_error"
    value: float
    stderr: float  # over the probes; NaN from one
    numerical_error: float  # what second order may leave out
    variance: float  # part of the value
    bias: float  # part of the value
    yardstick: float  # the least that keeping as many keys one by one could give
    mean_keys: float  # read by a query of a head
    mean_visible: float  # that it sees
    probes: int
    trusted: bool  # whether second order and first-order noise hold
    doubt: str  # why it is not to be trusted, or nothing
    contributions: Array  # (layers, heads)
    keys: Array  # (layers, heads) read by a query, on average

    @property
    def kl(self) -> float:
        """Mean KL divergence of the next token, in nats."""
        return self._named("kl")

    @property
    def cosine_loss(self) -> float:
        """1 - cosine of the embedding."""
        return self._named("cosine_loss")

    @property
    def squared_error(self) -> float:
        """Expected squared error of the output function."""
        return self._named("squared_error")

    def _named(self, name: str) -> float:
        if name != self.measure:
            raise BadInput(
                f"This error is of the {WORDS[self.measure]} (.{self.measure}), not of the "
                f"{WORDS[name]}; choose with output= when predicting."
            )
        return self.value

    def to_frame(self) -> pd.DataFrame:
        """One row for each head: what it adds to the error, and how many keys it reads."""
        layers, heads = self.contributions.shape
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(layers), heads),
                "head": np.tile(np.arange(heads), layers),
                "contribution": self.contributions.ravel(),
                "share": self.contributions.ravel() / (self.value or 1.0),
                "mean_keys": self.keys.ravel(),
            }
        )

    def panel(self) -> Panel:
        """What each layer's heads add to the error."""
        layers = np.arange(len(self.contributions))
        share = 100 * self.contributions.sum(axis=1) / (self.value or 1.0)
        series = [Series(layers, share, "line", self.sampler, self.sampler)]
        title = f"{WORDS[self.measure]} {self.value:.2g}, by layer"
        return Panel(title, "layer", "share of the error (%)", series, "linear", "linear")

    def __str__(self) -> str:
        error = f" +- {np.hypot(np.nan_to_num(self.stderr), self.numerical_error):.1g}"
        lines = [
            f"{self.sampler}: {WORDS[self.measure]} {self.value:.3g}{error}{UNITS[self.measure]} "
            f"predicted, reading {self.mean_keys:.1f} of {self.mean_visible:.1f} keys",
            f"  variance {self.variance:.3g}, bias {self.bias:.3g}; {self.probes} probes",
            f"  to first order as many keys, kept one by one, err by {self.yardstick:.2g} at least",
        ]
        return "\n".join(lines + ([f"  not to be trusted: {self.doubt}"] if self.doubt else []))


def output_error(
    model: Any,
    text: Any,
    samplers: Samplers,
    *,
    output: Output = None,
    probes: int = 8,
    seed: int = 0,
    truncate: bool = False,
) -> OutputError:
    """Predict what reading fewer keys does to a model's output, without running it thinned.

    Parameters
    ----------
    model : LoadedModel or transformers model
    text : str, token ids, or a mapping of input tensors
    samplers : Sampler, mapping or plan
        One sampler for every head, samplers by (layer, head), or a plan.
    output : "kl", "cosine" or function, optional
        What counts: KL of the next token (causal models, the default for them), the angle of the
        mean-pooled embedding (the default for encoders), or the squared error of any
        differentiable function of `Outputs` (`.hidden`, `.logits`, `.embedding`).
    probes : int
        Backward passes; the standard error is over them.
    """
    found = output_errors(
        model,
        text,
        {describe(samplers): samplers},
        output=output,
        probes=probes,
        seed=seed,
        truncate=truncate,
    )
    return next(iter(found.values()))


def output_errors(
    model: Any,
    text: Any,
    samplers: Mapping[str, Samplers],
    *,
    output: Output = None,
    probes: int = 8,
    seed: int = 0,
    truncate: bool = False,
) -> dict[str, OutputError]:
    """Predict many ways to sample from the same probes; see `output_error`."""
    network, _ = unwrap(model)
    if not isinstance(samplers, Mapping) or not samplers:
        raise BadInput("Give samplers by name, like {'few': al.Threshold(24)}; at least one.")
    tables = [sampler_table(network, one) for one in samplers.values()]
    target = choose_target(network, output)
    count = checks.count(probes, "probes")
    encoded = encode(model, text, truncate=truncate)
    found = head_errors(
        network, encoded, tables, target, count, checks.count(seed, "seed", smallest=0)
    )
    results = {}
    for index, (name, table) in enumerate(zip(samplers, tables, strict=True)):
        bias = None
        if is_biased(table):
            bias = bias_distance(network, encoded, target, found.probed.read, table)
        results[name] = _result(name, target.name, found, index, bias)
    return results


def _result(
    name: str, measure: str, found: HeadErrors, index: int, exact_bias: float | None
) -> OutputError:
    scale, probes = found.probed.scale, found.variance.shape[-1]
    variance = scale * found.variance[index]
    whole = found.bias[index].sum((0, 1))
    shared = scale * found.bias[index] * whole
    if exact_bias is not None:
        # The probes see where the bias comes from, the pass how large it is.
        seen = float((scale * whole**2).mean())
        shared = shared * (exact_bias / seen if seen > 0 else 0.0)
    by_probe = variance.sum((0, 1)) + (
        scale * whole**2 if exact_bias is None else np.full(probes, exact_bias)
    )
    value = float(by_probe.mean())
    rough = scale * float(found.rough[index].sum((0, 1)).mean())
    doubt = ""
    noise = float(variance.sum((0, 1)).mean())
    if noise > found.probed.limit:
        doubt = (
            f"beyond {found.probed.limit:.3g} thinned layers feed thinned layers, and more is lost "
            "than second order says: trust a measurement (attnlimit try, try_samplers)"
        )
    elif rough > MAX_ROUGH * value > 0:
        doubt = (
            f"{100 * rough / value:.0f} % of it comes from queries whose sample is too small for "
            "first order: trust a measurement (attnlimit try, try_samplers)"
        )
    queries = found.probed.tokens
    return OutputError(
        sampler=name,
        measure=measure,
        value=value,
        stderr=float(by_probe.std(ddof=1) / np.sqrt(probes)) if probes > 1 else float("nan"),
        numerical_error=third_order(noise, found.probed.limit),
        variance=noise,
        bias=value - noise,
        yardstick=scale * found.yardstick.variance(float(found.keys[index].sum())),
        mean_keys=float(found.keys[index].mean()) / queries,
        mean_visible=found.visible / found.keys[index].size / queries,
        probes=probes,
        trusted=not doubt,
        doubt=doubt,
        contributions=(variance + shared).mean(-1),
        keys=found.keys[index] / queries,
    )
