"""Results of restrictions: lines and planes, their storage and their checks."""
