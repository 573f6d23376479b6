"""`python -m robustassay` is the command `assay`."""

import sys

from robustassay.cli import main

sys.exit(main())
