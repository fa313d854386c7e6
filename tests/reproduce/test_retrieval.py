"""A query finds the nearest text; errors are over documents."""

import numpy as np
import pytest

from attnlimit.errors import BadInput
from attnlimit.intervals import resampled_means
from attnlimit.models.texts import read_labelled
from attnlimit.reproduce.downstream import RetrievalTask, Retriever


def finder(labels=None):
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((9, 400))
    dense[4] = dense[3] + 0.1 * dense[4]  # beside it, same document
    dense[1] = dense[8] + 0.1 * dense[1]  # far away, another document
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    task = RetrievalTask([[0]] * 9, np.repeat([0, 1, 2], 3), np.array([1, 4]), labels)
    return Retriever(task, dense)


def test_nearest_other_passage_is_found():
    result = finder()
    assert result.hits(result.dense[result.task.queries]) == {
        "article": pytest.approx([False, True]),
        "neighbour": pytest.approx([False, True]),
    }


def test_labels_are_learnt_from_texts_that_are_not_asked():
    pytest.importorskip("sklearn")
    labels = np.array(list("xaxbbxxxa"))
    result = finder(labels)
    assert result.hits(result.dense[result.task.queries])["label"].tolist() == [True, True]


def test_errors_over_documents_count_documents_and_not_texts():
    rng = np.random.default_rng(0)
    level = rng.standard_normal(400)
    values, documents = np.repeat(level, 5), np.repeat(np.arange(400), 5)
    again = resampled_means(values, documents)
    assert again.std() == pytest.approx(level.std() / 20, rel=0.1)
    assert again.mean() == pytest.approx(level.mean(), abs=3 * again.std() / 1000**0.5)


def test_a_csv_and_folders_say_the_same(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('text,label\n"Cats, and\ndogs",pets\nBonds fell,money\n')
    for label, text in (("pets", "Cats, and\ndogs"), ("money", "Bonds fell")):
        (tmp_path / "folders" / label).mkdir(parents=True)
        (tmp_path / "folders" / label / "one.txt").write_text(text)
    first, second = read_labelled(str(table)), read_labelled(str(tmp_path / "folders"))
    assert set(zip(first.texts, first.labels, strict=True)) == set(
        zip(second.texts, second.labels, strict=True)
    )
    assert len(first) == 2
    table.write_text("text,label\nCats,pets\nBonds fell,money\n")
    assert read_labelled(str(table)).sha256 != first.sha256


def test_what_is_missing_is_said(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("text,kind\nCats,pets\n")
    with pytest.raises(BadInput, match="no column label"):
        read_labelled(str(table))
    table.write_text("text,label\nCats,pets\nDogs,pets\n")
    with pytest.raises(BadInput, match="two labels"):
        read_labelled(str(table))
    with pytest.raises(BadInput, match="no folders"):
        read_labelled(str(tmp_path))
    with pytest.raises(BadInput, match="There is no text"):
        read_labelled(str(tmp_path / "nothing.csv"))
