"""Our eviction and budgets beside kvpress itself: `make kvpress`."""

from __future__ import annotations

import pandas as pd

from evidence.blocks import table, value
from evidence.cells import article, measured, number, once, percent
from evidence.studies import Study

KVPRESS = "make kvpress"
OURS = {"weighted": "`Evict`, weighted", "weighted, sized by output": "`Evict`, sized by output"}
A_TENTH = ["weighted, sized by output", "SnapKV", "StreamingLLM"]


def _cut(study: Study) -> pd.DataFrame:
    rows = study.tables["presses"]
    return rows[rows["method"] != "full"]


@table(KVPRESS)
def presses_compared(study: Study) -> pd.DataFrame:
    """KL after the cut by share kept and method, the best first."""
    rows = _cut(study)
    lines = []
    for keep, part in sorted(rows.groupby("keep"), key=lambda one: -one[0]):
        means = part.groupby("method")["kl"].mean().sort_values()
        for method, mean in means.items():
            cells = part[part["method"] == method].set_index("text")
            errors = cells["stderr"].fillna(0)
            shown = {
                article(text): measured(one, errors[text]) for text, one in cells["kl"].items()
            }
            kept = {"kept": percent(keep, 0), "method": OURS.get(method, method)}
            lines.append({**kept, **shown, "mean": number(mean)})
    return pd.DataFrame(lines).assign(kept=lambda frame: once(frame["kept"]))


@table(KVPRESS)
def perplexity_after_a_cut(study: Study) -> pd.DataFrame:
    """Perplexity of some methods with the smallest cache, beside the full one."""
    rows = study.tables["presses"]
    fewest = rows[rows["keep"] == rows["keep"].min()]
    lines = []
    for method in ["full", *A_TENTH]:
        cells = (rows if method == "full" else fewest).set_index("method").loc[method]
        name = "full cache" if method == "full" else OURS.get(method, method)
        shown = zip(cells["text"].map(article), cells["perplexity"], strict=True)
        lines.append({"method": name} | {text: f"{one:.2f}" for text, one in shown})
    return pd.DataFrame(lines)


@value(KVPRESS)
def rules_as_in_kvpress(study: Study) -> str:
    """How alike the rules are that both have."""
    rows = study.tables["same_rules"]
    apart = (rows["kl"] - rows["kl_kvpress"]).abs().max()
    return (
        f"{percent(rows['same'].min(), 2)} of the same keys, and KLs {apart:.0e} nats apart at most"
    )
