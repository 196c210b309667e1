#!/usr/bin/env bash
# Everything there is to check, on a fresh Debian machine, as root: formats, lint, types, import
# contracts and all tests, those on a real systemd too. A system test that cannot run fails.
# Touches apt packages, .venv here, /var/cache/appliance-wheels and /var/tmp/appliance-rig.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/packages.sh
source scripts/packages.sh
need_packages "${box_packages[@]}" curl gcc libc6-dev make openssl

export APPLIANCE_TESTS_REQUIRE_SYSTEM=1
make test
