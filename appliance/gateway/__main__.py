"""Run the gateway: ``python -m appliance.gateway``, as appliance-gateway.service does."""

import sys

from appliance.gateway.process import main

sys.exit(main(sys.argv[1:]))
