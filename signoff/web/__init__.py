"""The web application: threads, their runs as tasks of the server, and a shared terminal, in a browser."""
