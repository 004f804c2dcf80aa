"""Many lines: every backend gives the library's answers, and a store survives crashes and damage."""
