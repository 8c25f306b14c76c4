"""What went wrong, as values: codes, places, texts."""
