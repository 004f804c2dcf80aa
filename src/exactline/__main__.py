"""Run the command line with ``python -m exactline``."""

from .cli import main

if __name__ == "__main__":
    main()
