"""`python -m signoff.cli` is `signoff`."""

from signoff.cli.app import main

main()
