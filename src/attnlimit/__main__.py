"""`python -m attnlimit` is the command line."""

from attnlimit.cli import main

if __name__ == "__main__":
    main()
