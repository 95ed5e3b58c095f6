"""Histories of several formats, for the tests of `signoff.lint`."""
