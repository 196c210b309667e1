"""Run the health agent: ``python -m appliance.health``, as its unit does."""

import sys

from appliance.health.process import main

sys.exit(main())
