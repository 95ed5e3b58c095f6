"""The constants that every reader and writer of a SQLite file of threads uses."""

SCHEMA = 1
"""The version of the database, kept in SQLite's `user_version`."""

BUSY_SECONDS = 30.0
"""Seconds to wait for a database that another process writes to."""
