"""How one task runs, wherever it does: calls, shell commands, what task code imports, what is measured."""
