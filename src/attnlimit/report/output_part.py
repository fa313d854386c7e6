"""What does a page say of a model's output? How few keys are enough, and what less would cost."""

from __future__ import annotations

from typing import Any

import pandas as pd

from attnlimit.report.page import escape, fill, scrolled, table
from attnlimit.survey import Survey
from attnlimit.survey.answer import WORDS, Answer, with_error

SCHEMES = {
    "threshold": "threshold: heavy keys + a sample of the rest",
    "top-k + sample": "top-k + a plain sample of the rest",
    "top-p": "top-p: heaviest keys up to a share of the weight",
    "top-k": "top-k: the best keys alone",
    "sinks + recent": "first 4 keys + the nearest",
    "yardstick": "limit to first order of independent choices",
}
"""Every way to choose keys, by its name in the tables, as people read it."""


def output_cards(answer: Answer) -> list[tuple[str, str]]:
    """Return the numbers that stand out, and what they are."""
    unit = f" ({WORDS[answer.measure]})"
    cards = [
        (f"{100 * answer.share:.0f} %", f"of the keys are read: {answer.keys:.0f} by a query"),
        (with_error(answer.predicted, answer.stderr), f"predicted{unit}"),
        (f"{answer.next_text:.2g}", "is what nine of ten other passages should stay below"),
    ]
    if answer.measured is not None:
        where = "a passage not planned on" if answer.unseen else "the passage planned on"
        found = with_error(answer.measured, answer.measured_stderr)
        cards.insert(2, (found, f"measured on {where}"))
    if answer.same_token is not None:
        agreed = "places keep the same most likely token, measured"
        cards.append((f"{100 * answer.same_token:.1f} %", agreed))
    return cards


def output_section(survey: Survey) -> str:
    """Return the slider and the curve."""
    targets, answer = survey.tables["targets"], survey.answer
    label = "KL that is allowed, in nats" if answer.measure == "kl" else "1 − cosine allowed"
    return fill(
        "output.html",
        slider_label=escape(label),
        last=str(len(targets) - 1),
        chosen=str(_chosen(survey)),
        curve_says=escape(_curve_says(survey)),
        curve_table=scrolled(table(_numbers(survey)), "Output error by scheme"),
    )


def _curve_says(survey: Survey) -> str:
    answer, goal = survey.answer, survey.question.goal
    axes = f"{WORDS[answer.measure]} against the keys that a query reads"
    better = "lower and further left is better"
    marks = "The dashed line is the target above, the star its plan."
    if answer.measured is None:
        kept = "backward passes that the capture keeps"
        return f"{axes}: {better}. The line is predicted from the {kept}. {marks}"
    where = "a passage that no plan was made on" if answer.unseen else "the passage planned on"
    return (
        f"{axes}, on {where}: {better}. Lines are predicted from {goal.probes} backward passes; "
        "points are measured by running the model, with bars of one standard error over "
        f"{goal.repeats} runs. Schemes that draw nothing need no prediction: one run says it all. "
        f"{marks}"
    )


def output_data(survey: Survey) -> dict[str, Any]:
    """Return what the slider, the curve and the map draw."""
    tables, asked, answer = survey.tables, survey.question, survey.answer
    shares = tables["shares"][tables["shares"].layer.isin(asked.layers)]
    heads = {
        target: part.sort_values(["layer", "head"]) for target, part in shares.groupby("target")
    }
    levels = [
        {
            **row[["target", "keys", "visible", "predicted", "stderr", "trusted"]].to_dict(),
            "next": row.next_text,
            "sampler": row.sampler,
            "headKeys": heads[row.target]["keys"].tolist(),
            "headShares": (heads[row.target].contribution / row.predicted).tolist(),
        }
        for _, row in tables["targets"].sort_values("target").iterrows()
    ]
    return {
        "measure": answer.measure,
        "word": WORDS[answer.measure],
        "model": answer.model,
        "chosen": _chosen(survey),
        "levels": levels,
        "schemes": _schemes(tables["output"]),
    }


def _chosen(survey: Survey) -> int:
    """Place of the target that was asked."""
    return int((survey.tables["targets"].target < survey.question.goal.allowed).sum())


def _schemes(output: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for name, label in SCHEMES.items():
        rows = output[(output.scheme == name) & (output.error > 0)].sort_values("keys")
        parts = {law: rows[rows.law == law] for law in ("predicted", "measured")}
        found.append(
            {
                "name": name,
                "label": label,
                **{
                    law: {
                        "x": part["keys"].tolist(),
                        "y": part.error.tolist(),
                        "e": part.stderr.tolist(),
                        "sampler": part.sampler.tolist(),
                    }
                    for law, part in parts.items()
                },
            }
        )
    return found


def _numbers(survey: Survey) -> pd.DataFrame:
    """One row for each way and size, predicted beside measured where both are known."""
    rows = survey.tables["output"]
    place = ["scheme", "sampler"]
    keep = [*place, "keys", "error", "stderr"]
    predicted, measured = (
        rows[(rows.law == law) & rows.sampler.notna()][keep] for law in ("predicted", "measured")
    )
    both = predicted.merge(measured, on=place, how="outer", suffixes=("", " measured"))
    both["keys"] = both["keys"].fillna(both["keys measured"])
    names = {"error": "predicted", "stderr": "± probes", "error measured": "measured"}
    names |= {"stderr measured": "± runs", "keys": "keys read"}
    shown = both.drop(columns="keys measured").rename(columns=names)
    order = [*place, "keys read", "predicted", "± probes", "measured", "± runs"]
    return shown.sort_values(["scheme", "keys read"])[order]
