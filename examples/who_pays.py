"""
Which layers pay?
=================

Every head reads fewer keys. Where does the output's error come from? Two rules at about as many
keys read.
"""

import matplotlib.pyplot as plt

import attnlimit as al

model = al.models.load("minilm")
text = al.models.wikipedia()["Anarchism"].text[:700]
ways = {"threshold": al.Threshold(32), "top": al.TopK(18)}
found = al.models.output_errors(model, text, ways)
for error in found.values():
    print(error)
found["threshold"].plot(found["top"])
plt.show()
