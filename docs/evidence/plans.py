"""Plans that are spent: plan_spent.py, plan_transfer.py and spend_generation.py in studies."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value, wrapped
from evidence.cells import measured, number, numbers, pairs, percent, setting, spaced
from evidence.studies import DEMO, Study

SPENT = "python studies/plan_spent.py"
TRANSFER = "python studies/plan_transfer.py"
GENERATION = "python studies/spend_generation.py"
YES = {True: "yes", False: "no"}


@value(DEMO)
def demo_answer(study: Study) -> str:
    """What the demo says of the model, in one paragraph."""
    return f"\n*{wrapped(spaced(' '.join(study.table['line'])))}*"


@table(SPENT)
def plans_by_size(study: Study) -> pd.DataFrame:
    """One size for the model or one for each head, on the planned text and on another."""
    texts = study.tables["texts"].set_index(["per", "text"])
    own, other = texts.index.unique("text")[:2]
    lines = []
    for plan in study.tables["plans"].itertuples():
        ends = f"{plan.smallest:.0f}", f"{plan.largest:.0f}"
        one = f"one threshold, c = {ends[0]}"
        each = f"one for each head (`--per head`), c from {' to '.join(ends)}"
        there = texts.loc[(plan.per, other)]
        dense = f"perplexity there (dense {there['dense']:.2f})"
        lines.append(
            {
                "plan": one if plan.per == "model" else each,
                "keys": f"{plan.keys:.1f}",
                "predicted": measured(plan.predicted, plan.stderr),
                "measured": measured(*texts.loc[(plan.per, own), ["measured", "stderr"]]),
                f"*{other}*": measured(*there[["measured", "stderr"]]),
                dense: f"{there['perplexity']:.2f}",
            }
        )
    return pd.DataFrame(lines)


def _running(study: Study) -> pd.DataFrame:
    texts = study.tables["texts"]
    return texts[texts["per"] == "model"]


@table(SPENT)
def running_estimate(study: Study) -> pd.DataFrame:
    """What a plan says of itself while it is spent, beside what it loses."""
    rows = _running(study)
    seen = [f"*{one}*{', not seen' if k else ''}" for k, one in enumerate(rows["text"])]
    return pd.DataFrame(
        {
            "text": seen,
            "running estimate": numbers(rows["running"]),
            "measured": pairs(rows),
            "heads err by": rows["off"].map(percent),
        }
    )


@value(SPENT)
def running_estimate_within(study: Study) -> str:
    """How far the estimate is from what is lost on texts that were not planned on, at most."""
    rows = _running(study)[1:]
    return percent(float((rows["running"] / rows["measured"] - 1).abs().max()), 0)


@table(TRANSFER)
def heads_that_break_a_plan(study: Study) -> pd.DataFrame:
    """What budgets of heads do on articles that they were not planned on."""
    rows = study.table
    few = rows["passages"].map(setting) + " " + rows["planned"]
    rule = rows["margin"].map({False: ", the largest need", True: ", with margin"})
    default = (rows["planned"] != "articles") & rows["margin"]
    named = few + rule + default.map({False: "", True: " (the default)"})
    below = pairs(rows, "below", "below_stderr")
    return pd.DataFrame(
        {
            "planned on": named.where(rows["passages"] > 1, "1 article"),
            "queries within ε": rows["kept"].map(lambda one: percent(one, 2)),
            "heads below 95 %": [f"{a}, of {b}" for a, b in zip(below, rows["heads"], strict=True)],
            "worst head": rows["worst"].map(lambda one: percent(one, 0)),
            "median budget": rows["budget"].map("{:.0f}".format),
        }
    )


def _one_head_in(study: Study, planned: str) -> str:
    rows = study.table
    (row,) = rows[(rows["planned"] == planned) & rows["margin"]].itertuples()
    return f"{float(f'{row.heads / row.below:.2g}'):.0f}"


@value(TRANSFER)
def heads_broken_by_default(study: Study) -> str:
    """One head of so many breaks its promise, by the default."""
    return _one_head_in(study, "passages of one article")


@value(TRANSFER)
def heads_broken_by_articles(study: Study) -> str:
    """One head of so many breaks its promise, planned on several articles."""
    return _one_head_in(study, "articles")


@value(GENERATION)
def running_estimate_in_generation(study: Study) -> str:
    """How many times what is lost the running estimate is, on text that the model wrote."""
    (row,) = study.table.itertuples()
    return f"{row.running / row.kl:.1f}"


@table(GENERATION)
def generation_on_few_keys(study: Study) -> pd.DataFrame:
    """What a plan does while text is generated."""
    (row,) = study.table.itertuples()
    said = {
        "planned": f"c = {row.c:.0f}, {row.plan_keys:.1f} of {row.plan_visible:.1f} keys",
        "keys read": f"{row.keys:.0f} of {row.visible:.0f}",
        "same most likely token as the dense model": percent(row.same_top),
        "KL to the dense model, nats": number(row.kl, 2),
        "KL by the running estimate, nats": number(row.running, 2),
        "by itself, tokens until it leaves the dense text": (
            f"{row.dense_text_for} of {row.free} tried"
        ),
        "writes the same again from its seed": YES[row.same_again],
        "writes the dense text when every key is kept": YES[row.dense_with_all_keys],
        "three prompts in a padded batch write what each does alone": YES[row.batch_as_alone],
    }
    return pd.DataFrame({"what": list(said), "found": list(said.values())})


@table("python -m benchmarks output")
def cost_of_plans(study: Study) -> pd.DataFrame:
    """Seconds of CPU, beside those of what it is compared with."""
    rows = study.table
    return pd.DataFrame(
        {
            "what": rows["what"],
            "seconds": numbers(rows["measured"]),
            "the other's": numbers(rows["baseline"]),
            "times the other's": numbers(rows["measured"] / rows["baseline"], 2),
        }
    )
