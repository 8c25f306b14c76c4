"""Repairs of a pipeline's text: edits at marks, everything else stays as it is written."""
