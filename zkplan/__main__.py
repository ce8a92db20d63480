"""`python -m zkplan` is the `zkplan` command."""

from .cli import main

if __name__ == "__main__":
    main()
