import numpy as np
import pytest

import document_bags as documents
from attnlimit.bags import plan as plan_bags
from attnlimit.errors import BadInput
from planned_bags import measure_plan

TITLES = [f"article {i}" for i in range(6)]


class Article:
    def __init__(self, title):
        self.title, self.text = title, "word " * 100


class Articles(dict):
    def __iter__(self):
        return iter(self.values())


@pytest.fixture
def marked(monkeypatch):
    """Stands in for the model: a sentence's embedding is its article and its place in it."""
    from attnlimit.models import texts as source

    def embedded(model, title, most):
        return np.array([[TITLES.index(title), place] for place in range(most or 30)], float)

    articles = Articles((title, Article(title)) for title in TITLES)
    monkeypatch.setattr(source, "wikipedia", lambda: articles)
    monkeypatch.setattr(documents, "sentence_embeddings", embedded)


def rows(array):
    return {tuple(row) for row in array}


def test_sentences_are_distinct_and_leave_headings_out():
    actual = "This sentence has quite a few words in it, enough."
    text = (
        f"Heading.\n{actual} Too short. {actual}\nAnd is another of the same length not also kept?"
    )
    assert documents.sentences(text) == [
        actual,
        "And is another of the same length not also kept?",
    ]


def test_no_test_sentence_is_seen_in_training(marked):
    source = documents.document_bags("article 2", background=4, per_article=10)
    same, apart = source.tests["unseen sentences"], source.tests["unseen articles"]
    seen = rows(source.train.hits) | rows(source.train.others)
    for pool in (same, apart):
        assert not seen & (rows(pool.hits) | rows(pool.others))
    noise = {row[0] for row in rows(source.train.others)}
    assert {row[0] for row in rows(same.others)} == noise
    assert not {row[0] for row in rows(apart.others)} & noise
    assert {row[0] for row in rows(source.train.hits) | rows(same.hits)} == {2.0}
    assert 2.0 not in noise | {row[0] for row in rows(apart.others)}
    assert len(source.train.hits) == len(same.hits) == 15


def test_more_background_than_there_is_is_refused(marked):
    with pytest.raises(BadInput, match="there are 5 other articles"):
        documents.document_bags("article 0", background=9)


@pytest.mark.slow
def test_real_sentences_end_to_end(text_and_model):
    source = documents.document_bags("Autism", background=20, per_article=30)
    rng = np.random.default_rng(0)
    plan = plan_bags(source.draw(100, rng), [400])
    tests = source.draw_tests(500, rng)
    frame = measure_plan(plan, source.draw, tests, replicates=2)
    actual, plain = (
        frame[frame["pooling"] == name].set_index("test") for name in ("attention", "mean pooling")
    )
    # attention wins by far, whether sentences or whole articles are new; a pilot whose bags share
    # sentences cannot tell, for cross-validation meets them again
    assert (actual["measured"] < 0.7 * plain["measured"]).all()
