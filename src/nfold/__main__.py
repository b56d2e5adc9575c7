"""python -m nfold: the command line, where its command is not on the path."""

import sys

from nfold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
