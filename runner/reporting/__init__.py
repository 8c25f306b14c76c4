"""Times, tables, JSON, and what machine they were taken on."""
