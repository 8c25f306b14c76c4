"""Better configurations than those that ship, searched for in child processes: a wrong one must not end the search."""
