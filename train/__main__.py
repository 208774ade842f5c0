"""`python -m train PRESET [--key value ...]`; see train/run.py."""

import sys

from train.run import main

sys.exit(main())
