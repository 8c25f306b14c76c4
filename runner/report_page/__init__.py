"""Records as a page: one HTML file that needs no network, its plots as files, and a trace for Perfetto."""
