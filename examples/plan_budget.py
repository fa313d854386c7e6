"""
Certified tokens for every head
===============================

How many tokens are enough for each head by itself, with a certificate: at most 10 % error with
probability 0.95. Planned on one text; the promise is then checked on another.
"""

import matplotlib.pyplot as plt

import attnlimit as al
from attnlimit.budgets import keep_promise

model = al.models.load("minilm")


def article(title):
    """The capture of the first tokens of an article, two layers of it."""
    text = al.models.wikipedia()[title].text
    ids = model.tokenizer(text, truncation=True, max_length=128)["input_ids"]
    return al.models.capture(model, ids, layers=[1, 4])


plan = al.budget(article("Anarchism"), epsilon=0.1, delta=0.05, queries=16)
plan.plot()
plt.show()
print(keep_promise(plan, article("Autism"), draws=10))
