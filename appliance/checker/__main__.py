"""Run the checker: ``python -m appliance.checker``, as its unit does."""

import sys

from appliance.checker.process import main

sys.exit(main())
