"""Is a run the demo's? Then it is kept like a study: its answer, line by line."""

from __future__ import annotations

import json

from attnlimit import __version__
from attnlimit.cli.measure import DEMO_REPLICATES
from attnlimit.reproduce.model import ModelRun, survey_of
from attnlimit.runs import RunFolder
from evidence.studies import DEMO, Study


def found_demos(runs: list[RunFolder]) -> dict[str, Study]:
    """Return the newest run of the demo, if there is one."""
    demos = [demo_of(folder) for folder in runs if is_demo(folder)]
    return {one.asked: one for one in sorted(demos, key=lambda one: one.record["created"])}


def is_demo(folder: RunFolder) -> bool:
    """Whether the demo of this version left it, by its model and its draws."""
    record = folder.record()
    asked = [record["config"].get(name) for name in ("model", "replicates")]
    made = [record["experiment"], record["version"]]
    return [*made, *asked] == [ModelRun.name, __version__, "minilm", DEMO_REPLICATES]


def demo_of(folder: RunFolder) -> Study:
    """What it says, as a study keeps it."""
    record = folder.record()
    said = [{"line": line.strip()} for line in survey_of(folder).says()]
    about = {"command": DEMO, "title": "How few keys are enough for MiniLM on an article?"}
    made = {name: record[name] for name in ("version", "created")}
    return Study({**about, **made, "seconds": spent(folder), "tables": {"answer": said}})


def spent(folder: RunFolder) -> float:
    """What its shards took, one after the other."""
    shards = (folder.path / "shards").glob("*.json")
    return sum(json.loads(one.read_text()).get("seconds", 0.0) for one in shards)
