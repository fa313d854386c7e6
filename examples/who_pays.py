"""
Layers that cause the error
===========================

Every head reads fewer keys. The share of the output's error by layer, for two rules at about as
many keys read.
"""

import matplotlib.pyplot as plt

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text[:700]
ways = {"threshold 32": al.Threshold(32), "top 18": al.TopK(18)}
errors = al.models.output_errors(model, text, ways)
for error in errors.values():
    print(error)
axes = errors["threshold 32"].plot(errors["top 18"])
axes.lines[-1].set(linestyle="--", marker="s")
axes.legend()
plt.show()
