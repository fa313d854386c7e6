"""Bags of a task, drawn and checked."""

from attnlimit.bags import make_bags


def drawn(task, n, dim, seed):
    X, y = task.sample(n, dim, seed)
    return make_bags(list(X), y)
