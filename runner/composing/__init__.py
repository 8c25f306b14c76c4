"""From a definition alone to a checked graph of stages: what ``chunkwise new`` does."""
