"""``python -m exactline`` is the command ``exactline``."""

from .cli import main

if __name__ == "__main__":
    main()
