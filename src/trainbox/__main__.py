"""`python -m trainbox`"""

import sys

from trainbox.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
