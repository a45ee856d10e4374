"""One file a command; its function has the name of the file."""
