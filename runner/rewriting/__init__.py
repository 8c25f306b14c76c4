"""Parts of a graph replaced by a stage that does the same: patterns, where they fit, and the graph after."""
