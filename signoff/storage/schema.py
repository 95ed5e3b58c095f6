"""The number of the stored form, which every database carries."""

from signoff.graph.errors import StorageError

SCHEMA = 4
"""The number of the form in which threads are stored: SQLite's `user_version`, PostgreSQL's `signoff_schema`.

It is incremented whenever this code would misread a thread in the form before."""


def check_schema(version: int, database: object) -> None:
    """Raises StorageError for a database that was written in another form, that of this number."""
    if version == SCHEMA:
        return
    newer = version > SCHEMA
    raise StorageError(
        f"The database {database} was written by {'a newer' if newer else 'an older'} Signoff (version "
        f"{version}; this one reads {SCHEMA}): "
        + ("upgrade Signoff." if newer else "open it with that Signoff, or use another database.")
    )
