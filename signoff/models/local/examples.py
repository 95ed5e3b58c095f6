"""Worked examples for a small model."""

WORKED_EXAMPLES = ""
