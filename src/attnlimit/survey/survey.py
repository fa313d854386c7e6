"""What did a survey find? Its typed tables, read once, and what they say together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import pyarrow as pa

from attnlimit.budgets import HeadBudget, Plan
from attnlimit.models import OutputPlan
from attnlimit.survey.answer import Answer, keys_for
from attnlimit.survey.output import asked_row, planned
from attnlimit.survey.question import Question
from attnlimit.survey.schemas import SCHEMAS


@dataclass(frozen=True, eq=False)
class Survey:
    """Every head of a model; `tables` has a frame for each of `SCHEMAS`."""

    question: Question
    tables: Mapping[str, pd.DataFrame]

    @property
    def has_output(self) -> bool:
        """Whether the model's output was planned."""
        return len(self.tables["targets"]) > 0

    @cached_property
    def answer(self) -> Answer:
        """How few keys are enough for the output."""
        asked = asked_row(self.question, self.tables["targets"])
        return Answer.of(self.question.model, len(self.question.passages), asked)

    @cached_property
    def output_plan(self) -> OutputPlan:
        """The plan of the answer, which can be spent and written."""
        return planned(self.question, self.tables)

    @property
    def refusal(self) -> str:
        """Why there is no answer for the output, if there is none."""
        return " ".join(self.tables["refusals"].reason)

    @property
    def has_heads(self) -> bool:
        """Whether heads were surveyed one by one."""
        return len(self.tables["heads"]) > 0

    def rival(self) -> str:
        """Say what the best keys alone would cost for the same error on the same passage."""
        curves, answer = self.tables["output"], self.answer
        best = curves[(curves.scheme == "top-k") & (curves.law == "measured")]
        ours = curves[(curves.scheme == "threshold") & (curves.law == "predicted")]
        keys, own = keys_for(best, answer.target), keys_for(ours, answer.target)
        if own is None:
            return ""
        if keys is None:
            most = best["keys"].max()
            beyond = len(best) and best.error.min() > answer.target and most > own
            said = f"more than {most / own:.1f} times" if beyond else ""
        else:
            said = f"{keys / own:.1f} times"
        best_only = "reading only the best keys (top-k) would take"
        return f"For the same error, {best_only} {said} as many." if said else ""

    @cached_property
    def plan(self) -> Plan:
        """The budgets of all heads."""
        asked, about = self.question, self.tables["heads"].iloc[0]
        entries = pa.Table.from_pandas(self.tables["budgets"], schema=SCHEMAS["budgets"])
        budgets = tuple(
            HeadBudget.from_dict(entry, entry["layer"], asked.tokens, asked.terms)
            for entry in entries.to_pylist()
        )
        shape = int(about.key_value_heads), int(about.key_value_width)
        return Plan(budgets, asked.terms, asked.tokens, *shape, source=asked.source)

    @cached_property
    def heads(self) -> pd.DataFrame:
        """One row for each head: its budget, horizon, and the share of draws within epsilon."""
        about = self.tables["heads"][["layer", "head", "horizon", "within"]]
        return self.plan.to_frame().merge(about, on=["layer", "head"])

    @cached_property
    def referee(self) -> pd.DataFrame:
        """Measured errors beside the exact law at the same n."""
        curves = self.tables["curves"]
        place = ["layer", "head", "n"]
        exact = curves[curves.law == "exact"][[*place, "error"]]
        both = curves[curves.law == "measured"].merge(exact, on=place, suffixes=("", "_exact"))
        return both[place].assign(
            error=both.error_exact / both.error - 1,
            deviations=(both.error_exact - both.error) / both.stderr,
        )

    def layers(self) -> pd.DataFrame:
        """One row for each layer: its budgets, its median horizon, and the draws within epsilon."""
        by_layer = self.heads.groupby("layer")
        table = self.plan.layers()
        table.insert(1, "H, median", by_layer.horizon.median().to_numpy())
        return table.assign(**{"within epsilon": by_layer.within.mean().to_numpy()})

    def says(self) -> list[str]:
        """Sentences on the model's output, or on why there are none."""
        if not self.has_output:
            return [f"The model's output was not planned: {self.refusal}"]
        return [*self.answer.lines(), *filter(None, [f"  {self.rival()}".rstrip()])]

    def remarks(self) -> list[str]:
        """Sentences on single heads, and on how far the exact law is from what was measured."""
        gap = self.referee
        return [
            *str(self.plan).splitlines(),
            f"Exact law against measurement at {len(gap)} points: median distance "
            f"{gap.error.abs().median():.2%}, {(gap.deviations.abs() < 3).mean():.0%} within three "
            "standard errors.",
        ]
