"""A query finds the nearest text; errors are over documents."""

import numpy as np
import pytest

from attnlimit.intervals import resampled_means
from attnlimit.reproduce.downstream import RetrievalTask, Retriever


def finder():
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((9, 400))
    dense[4] = dense[3] + 0.1 * dense[4]  # beside it, same document
    dense[1] = dense[8] + 0.1 * dense[1]  # far away, another document
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    task = RetrievalTask([[0]] * 9, np.repeat([0, 1, 2], 3), np.array([1, 4]))
    return Retriever(task, dense)


def test_nearest_other_passage_is_found():
    result = finder()
    assert result.hits(result.dense[result.task.queries]) == {
        "article": pytest.approx([False, True]),
        "neighbour": pytest.approx([False, True]),
    }


def test_errors_over_documents_count_documents_and_not_texts():
    rng = np.random.default_rng(0)
    level = rng.standard_normal(400)
    values, documents = np.repeat(level, 5), np.repeat(np.arange(400), 5)
    again = resampled_means(values, documents)
    assert again.std() == pytest.approx(level.std() / 20, rel=0.1)
    assert again.mean() == pytest.approx(level.mean(), abs=3 * again.std() / 1000**0.5)
