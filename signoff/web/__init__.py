"""The web application: threads, whose runs belong to the server, and a shared terminal, in a browser."""
