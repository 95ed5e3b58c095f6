"""`python -m signoff.models.local` installs the embedded model, and shows its state."""

from signoff.cli.model import app

app()
