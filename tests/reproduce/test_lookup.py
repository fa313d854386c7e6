"""What a text finds is what is nearest, noise turns by the angle asked for, errors are right."""

import numpy as np
import pytest

from attnlimit.reproduce.estimates import means_again
from attnlimit.reproduce.lookup import Finder, Lookup


def finder(labels=None):
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((9, 400))
    dense[4] = dense[3] + 0.1 * dense[4]  # beside it, same document
    dense[1] = dense[8] + 0.1 * dense[1]  # far away, another document
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    task = Lookup([[0]] * 9, np.repeat([0, 1, 2], 3), np.array([1, 4]), labels)
    return Finder(task, dense)


def test_nearest_other_passage_is_found():
    found = finder()
    assert found.found(found.dense[found.task.asked]) == {
        "article": pytest.approx([False, True]),
        "neighbour": pytest.approx([False, True]),
    }


def test_labels_are_learnt_from_texts_that_are_not_asked():
    pytest.importorskip("sklearn")
    labels = np.array(list("xaxbbxxxa"))
    found = finder(labels)
    assert found.found(found.dense[found.task.asked])["label"].tolist() == [True, True]


def test_noise_has_the_size_asked_for():
    found = finder()
    shaken = found.shaken(0.3, np.random.default_rng(1))
    assert found.loss(shaken) == pytest.approx([0.3, 0.3])
    assert np.linalg.norm(shaken, axis=1) == pytest.approx([1, 1])


def test_errors_over_documents_count_documents_and_not_texts():
    rng = np.random.default_rng(0)
    level = rng.standard_normal(400)
    values, documents = np.repeat(level, 5), np.repeat(np.arange(400), 5)
    again = means_again(values, documents)
    assert again.std() == pytest.approx(level.std() / 20, rel=0.1)
    assert again.mean() == pytest.approx(level.mean(), abs=3 * again.std() / 1000**0.5)
