"""Bad files of every format that is read, and what must be said of each."""
