"""The record of a thread as parts of a page: its timeline, the machine with its path, and their templates."""
