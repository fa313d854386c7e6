"""Every head of a model into typed tables: what `demo`, `measure` and `plan` stand on."""

from attnlimit.survey.head import survey_head
from attnlimit.survey.question import Question, Stretch, ask, ask_stored, write_captures
from attnlimit.survey.schemas import SCHEMAS
from attnlimit.survey.survey import Survey

__all__ = [
    "SCHEMAS",
    "Question",
    "Stretch",
    "Survey",
    "ask",
    "ask_stored",
    "survey_head",
    "write_captures",
]
