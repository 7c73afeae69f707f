"""How calls become a workflow: signatures, options, names, conditions, type checks and the compiler."""
