"""What a restriction returns: lines, planes, their storage and their checks."""
