"""Run the supervisor: ``python -m appliance.supervisor``, as its unit does."""

import sys

from appliance.supervisor.process import main

sys.exit(main())
