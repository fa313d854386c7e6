"""Planning: predicted output errors, plans that keep a target, budgets and exports."""
