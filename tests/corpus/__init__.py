"""Files that must be refused, of every format that is read; and files of version 1, which must still load."""
