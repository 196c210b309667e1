#!/usr/bin/env bash
# The appliance at work, on a fresh Debian machine, as root: boots a disposable machine over this
# one, installs there without network, switches between two real models, asks both, reboots and
# shows that the committed one is back. The last line is JSON.
#
#   scripts/demo.sh          clean up at the end
#   scripts/demo.sh --keep   leave the disposable machine running and say how to enter it
#
# While one runs or is kept a second one is refused (75), unless APPLIANCE_RIG_DIR names another folder for it.
#
# Touches apt packages and the wheels in /var/cache/appliance-wheels; its work in /var/tmp goes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

((EUID == 0)) || { printf 'demo.sh: this needs root: sudo %s\n' "$0" >&2; exit 77; }

# shellcheck source=scripts/packages.sh
source scripts/packages.sh
need_packages "${box_packages[@]}"

export APPLIANCE_RIG_DIR=${APPLIANCE_RIG_DIR:-/var/tmp/appliance-demo}
exec /usr/bin/python3 -B -m scripts.demo "$@"
