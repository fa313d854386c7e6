"""How few keys are enough for a model's output? The plan for what was asked, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from attnlimit.samplers.spec import parse_sampler

NAMES = {"minilm": "MiniLM", "smollm2": "SmolLM2"}
UNITS = {"kl": " nats", "cosine_loss": ""}
WORDS = {"kl": "KL divergence of the next token", "cosine_loss": "1 − cosine of the embedding"}


@dataclass(frozen=True)
class Answer:
    """The plan that keeps the asked target, predicted and measured."""

    model: str
    passages: int  # it was planned on
    measure: str
    target: float
    keys: float
    visible: float
    predicted: float
    stderr: float
    next_text: float
    trusted: bool
    sampler: str | None  # None if heads have their own
    measured: float | None  # None if it was not run
    measured_stderr: float | None
    repeats: int | None
    unseen: bool | None
    perplexity: float | None
    dense_perplexity: float | None
    same_token: float | None

    @classmethod
    def of(cls, model: str, passages: int, row: Any) -> Answer:
        """Return the answer that a row of the table of targets holds."""
        known: Mapping[str, Any] = row.astype(object).where(row.notna(), None)
        rest = {one.name: known[one.name] for one in fields(cls)[2:]}
        return cls(NAMES.get(model, model), passages, **rest)

    @property
    def share(self) -> float:
        """Keys read over keys seen."""
        return self.keys / self.visible

    def headline(self) -> str:
        """The answer in one sentence."""
        if self.measure == "kl":
            return (
                f"{self.model} reads {self.keys:.0f} of {self.visible:.0f} keys "
                f"for {self.target:.3g} nats."
            )
        return (
            f"{self.model} keeps its embedding within {100 * self.target:.3g} % "
            f"reading {100 * self.share:.0f} % of its keys."
        )

    def meaning(self) -> str:
        """What the headline's numbers are."""
        if self.measure == "kl":
            return (
                f"A query reads {self.keys:.1f} of the {self.visible:.0f} keys (earlier tokens) "
                "that it sees, on average over all heads, and the probabilities of the next token "
                f"move by a KL divergence of at most {self.target:.3g} nats."
            )
        return (
            f"A query reads {self.keys:.1f} of the {self.visible:.0f} keys (tokens) that it sees, "
            "on average over all heads, and the text's embedding keeps a cosine of at least "
            f"{1 - self.target:.6g} with the one that full attention gives."
        )

    def prediction(self) -> str:
        """What was expected, before anything was run on fewer keys."""
        known = "1 passage" if self.passages == 1 else f"{self.passages} passages"
        return (
            f"Predicted from {known} of text, before any run on fewer keys: "
            f"{self.value(self.predicted, self.stderr)}; nine of ten other passages should stay "
            f"below {self.next_text:.2g}."
        )

    def measurement(self) -> str:
        """What came out."""
        if self.measured is None or self.repeats is None:
            return "Not measured: a capture has no model to run."
        where = "a passage the plan has not seen" if self.unseen else "the passage it is made for"
        said = (
            f"Measured on {where}, {int(self.repeats)} runs: "
            f"{self.value(self.measured, self.measured_stderr)}"
        )
        if self.perplexity is None or self.dense_perplexity is None or self.same_token is None:
            return f"{said}."
        return (
            f"{said}; perplexity {self.perplexity:.4g} instead of {self.dense_perplexity:.4g}, the "
            f"same most likely token at {100 * self.same_token:.1f} % of the places."
        )

    def rule(self) -> str:
        """How keys are chosen."""
        if self.sampler is None:
            return "Each head has its own size."
        if self.sampler == "all keys":
            return "Every head reads all keys: no smaller plan keeps the target."
        kind, _, size = self.sampler.partition(":")
        if kind != "threshold":
            return f"Every head reads the {parse_sampler(self.sampler).name}."
        return (
            f"One rule for every head: read each key whose attention weight is at least "
            f"1/{float(size):.0f}, and a random sample of the rest."
        )

    def value(self, value: float, error: float | None) -> str:
        """Return a value with its standard error and unit."""
        return f"{with_error(value, error)}{UNITS[self.measure]}"

    def lines(self) -> list[str]:
        """Return the answer as a terminal shows it."""
        said = [self.meaning(), self.prediction(), self.measurement(), self.rule()]
        doubt = [] if self.trusted else [DOUBT]
        return [self.headline(), *(f"  {one}" for one in said + doubt)]


def with_error(value: float, error: float | None) -> str:
    """A number and its standard error, to the digit that the error allows."""
    if error is None or not error > 0:
        return f"{value:.2g}"
    places = max(0, 1 - int(np.floor(np.log10(error) + 1)))
    digits = places + (error * 10**places < 1.95)  # 0.0007 ± 0.0001 says too little
    return (
        f"{value:.{digits}f} ± {error:.{digits}f}" if digits < 9 else f"{value:.2g} ± {error:.1g}"
    )


DOUBT = "The target lies beyond where predictions hold: trust what was measured."


def keys_for(rows: pd.DataFrame, target: float) -> float | None:
    """Keys at which a scheme's error is `target`; None where its sizes do not reach across it."""
    known = rows[rows.error > 0].sort_values("keys")
    error, keys = (np.log(known[name].to_numpy()) for name in ("error", "keys"))
    falling = np.minimum.accumulate(error)
    if len(known) < 2 or not falling[-1] <= np.log(target) <= falling[0]:
        return None
    return float(np.exp(np.interp(-np.log(target), -falling, keys)))
