"""Is it right? References, the rounding model, budgets, the definition as oracle."""
