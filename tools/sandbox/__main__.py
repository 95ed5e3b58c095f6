"""`python -m signoff.tools.sandbox` shows what this machine's sandbox for Python enforces."""

from signoff.cli.sandbox import app

app()
