"""Run the web process: ``python -m appliance.web``, as its unit does."""

import sys

from appliance.web.process import main

sys.exit(main())
