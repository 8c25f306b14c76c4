"""What a plan launches, prepared at its first run: later ones only fill in addresses."""
