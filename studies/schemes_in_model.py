"""Samplers of as many keys inside SmolLM2, beside dense attention.

python studies/schemes_in_model.py
"""

import pandas as pd

import attnlimit as al
from tables import write_tables

TOKENS, KEYS, DRAWS = 1000, 256, 3
FEW = KEYS // 4
SCHEMES = {
    f"i.i.d. {KEYS}": al.Iid(KEYS),
    f"4 sinks + {KEYS - 4} recent": al.SinksAndRecent(4, KEYS - 4),
    f"4 sinks + {FEW} recent + {KEYS - FEW - 4} weighted": al.Keep(
        al.SinksAndRecent(4, FEW), sample=KEYS - FEW - 4
    ),
    f"top {FEW} alone": al.TopK(FEW),
    f"top {FEW} + {KEYS - FEW} weighted": al.Keep(al.TopK(FEW), sample=KEYS - FEW),
}

if __name__ == "__main__":
    model = al.models.load("smollm2")
    ids = model.ids(al.models.wikipedia()["Anarchism"].text, TOKENS)
    rows = []
    for name, sampler in SCHEMES.items():
        drawn = sampler.draws != "nothing"
        evaluation = al.models.evaluate(model, ids, sampler, repeats=DRAWS if drawn else 1)
        rows.append(evaluation.to_frame().assign(scheme=name, tokens=TOKENS))
        print(evaluation, flush=True)
    write_tables({"schemes-in-the-model": pd.concat(rows)})
