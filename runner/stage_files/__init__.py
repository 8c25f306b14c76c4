"""Stage files found, loaded, and held against their contracts."""
