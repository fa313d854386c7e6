"""The planner on text: documents as bags of sentence embeddings, predicted and then trained."""

from __future__ import annotations

from attnlimit.reproduce.experiment import Config, Shard
from bag_sources import BagSource
from document_bags import document_bags
from planned_bags import PlannedBags


class Documents(PlannedBags):
    """Bags of Wikipedia sentences, one article being the signal."""

    name = "sparse-documents"
    title = (
        "Sparse tokens on text: documents as bags of sentence embeddings, planned and then trained"
    )
    signal = "article"
    heading = "Bags of ten Wikipedia sentences, one of them from the article that is the signal"

    def config(self, paper: bool) -> Config:
        from attnlimit.models.loading import BUNDLED

        return {
            "articles": ["Amphibian", "Autism", "Apollo 11"],
            "model": "minilm",
            "weights": BUNDLED["minilm"].sha256,
            "text_licence": "CC BY-SA 3.0 and GFDL",
            "background": 60,
            "per_article": 40,
            "length": 10,
            "signals": 1,
            "pilot": 400,
            "budgets": [50, 100, 200, 400, 800, 1600],
            "replicates": 20 if paper else 6,
            "test_bags": 2000,
        }

    def source(self, shard: Shard) -> BagSource:
        """Bags of a shard's article."""
        names = ("article", "length", "signals", "background", "per_article", "model")
        return document_bags(**{name: shard[name] for name in names})


EXPERIMENT = Documents()
