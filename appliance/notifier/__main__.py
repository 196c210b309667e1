"""Run the notifier: ``python -m appliance.notifier``, as its unit does."""

import sys

from appliance.notifier.process import main

sys.exit(main())
