"""What the command line, the web application, the page of a run and the protocols share."""
