"""How fast does the mean output converge? Measured, fitted, and beside the prediction."""

import attnlimit as al

head = al.Head([[0.8]])
tokens = al.Gaussian(dim=1)
n = [250, 500, 1000, 2000]

measured = al.measure(head, tokens, "mean", n, replicates=200)
predicted = al.predict(head, tokens, "mean", n)
frame = measured.to_frame()[["n", "root", "root_stderr"]]
print(frame.assign(predicted=predicted.root).to_string(index=False))
print(al.fit_rate(measured, predicted=predicted))
print("variance reduction by controls:", measured.diagnostics.variance_reduction.round(1))
