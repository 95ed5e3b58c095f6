"""What every reader and writer of a SQLite file of threads keeps to."""

SCHEMA = 1
"""The version of the database, kept in SQLite's `user_version`."""

BUSY_SECONDS = 30.0
"""How long a database that another process writes to is waited for."""
