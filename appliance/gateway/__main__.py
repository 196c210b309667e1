"""``python -m appliance.gateway``: what appliance-gateway.service runs."""

import sys

from appliance.gateway.process import main

sys.exit(main(sys.argv[1:]))
