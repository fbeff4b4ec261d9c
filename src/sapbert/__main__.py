"""`python -m sapbert` is `sapbert`."""

from sapbert.cli.main import main

if __name__ == "__main__":
    main()
