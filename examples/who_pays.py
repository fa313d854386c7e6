"""
Which layers cause the error?
=============================

Every head reads fewer keys. Where does the output's error come from? Two rules at about as many
keys read.
"""

import matplotlib.pyplot as plt

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text[:700]
ways = {"threshold": al.Threshold(32), "top": al.TopK(18)}
errors = al.models.output_errors(model, text, ways)
for error in errors.values():
    print(error)
errors["threshold"].plot(errors["top"])
plt.show()
