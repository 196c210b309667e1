"""Run the auditor: ``python -m appliance.auditor``, as its unit does."""

import sys

from appliance.auditor.process import main

sys.exit(main())
