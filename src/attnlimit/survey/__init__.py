"""Every head of a model into typed tables: what `demo`, `measure` and `plan` stand on."""

from attnlimit.survey.goal import Goal
from attnlimit.survey.head import survey_head
from attnlimit.survey.output import output_parts, plans_for, survey_output, survey_plans
from attnlimit.survey.question import Passage, Question, ask, ask_stored, write_captures
from attnlimit.survey.schemas import SCHEMAS
from attnlimit.survey.survey import Survey

__all__ = [
    "SCHEMAS",
    "Goal",
    "Passage",
    "Question",
    "Survey",
    "ask",
    "ask_stored",
    "output_parts",
    "plans_for",
    "survey_head",
    "survey_output",
    "survey_plans",
    "write_captures",
]
