"""A plan for the output on other texts, with the running estimate.

SmolLM2, planned on tokens of one article for some nats, with one size and with one for each head.
On every text the plan is run, and one pass says what it believes to lose.
python studies/plan_elsewhere.py
"""

import pandas as pd
import torch

from attnlimit.models import evaluate, load, sampled_attention, wikipedia
from attnlimit.models import plan as make_plan
from tables import write_tables

TOKENS, NATS, DRAWS = 400, 0.01, 2
PLANNED_ON, OTHERS = "Anarchism", ("Alabama", "Aristotle", "Apollo 11", "Autism")

if __name__ == "__main__":
    model = load("smollm2")
    texts = {title: model.ids(wikipedia()[title].text, TOKENS) for title in (PLANNED_ON, *OTHERS)}
    plans, actual = [], []
    for per in ("model", "head"):
        plan = make_plan(model, texts[PLANNED_ON], kl=NATS, per=per)
        sizes = [sampler.c for sampler in plan.samplers().values()]
        made = {"per": per, "smallest": min(sizes), "largest": max(sizes)}
        made |= {"keys": plan.mean_keys, "visible": plan.mean_visible, "target": NATS}
        plans.append(made | {"predicted": plan.predicted, "stderr": plan.stderr})
        for title, ids in texts.items():
            with torch.no_grad(), sampled_attention(model, plan) as stats:
                model.model(torch.tensor([ids]), use_cache=False)
            trial = evaluate(model, ids, plan, repeats=DRAWS)
            row = {"per": per, "text": title, "running": stats.kl, "off": stats.relative_error}
            row |= {"measured": trial.kl, "stderr": trial.stderr["kl"]}
            row |= {"perplexity": trial.perplexity, "dense": trial.dense_perplexity}
            actual.append(row)
            print(row, flush=True)
    write_tables({"plans-by-size": pd.DataFrame(plans), "running-estimate": pd.DataFrame(actual)})
