"""What the command line, the application and the page of a run share."""
