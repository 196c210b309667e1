"""``python -m appliance.supervisor``: what appliance-supervisor.service runs."""

import sys

from appliance.supervisor.process import main

sys.exit(main())
