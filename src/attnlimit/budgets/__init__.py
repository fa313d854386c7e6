"""How many tokens are enough? Certified and typical budgets: of a query, a head and a model."""

from attnlimit.budgets.exports import Export, check_export, export_plan
from attnlimit.budgets.head import HeadBudget, SchemeBudget, head_budget
from attnlimit.budgets.model import Plan, plan_budgets, plan_from, read_plan
from attnlimit.budgets.promise import Promise, keep_promise
from attnlimit.budgets.query import Budget, curve_budget, query_budget

__all__ = [
    "Budget",
    "Export",
    "HeadBudget",
    "Plan",
    "Promise",
    "SchemeBudget",
    "check_export",
    "curve_budget",
    "export_plan",
    "head_budget",
    "keep_promise",
    "plan_budgets",
    "plan_from",
    "query_budget",
    "read_plan",
]
