#!/usr/bin/env bash
# Sourced by the scripts that boot boxes: the Debian packages those need on this machine.
# Boxes see this machine's /usr, so what the appliance needs itself is here too (libgomp1 is the
# embedded engine's).

# shellcheck disable=SC2034
box_packages=(dbus e2fsprogs iproute2 libgomp1 mount polkitd procps python3 python3-venv systemd systemd-container util-linux)

# need_packages NAME…: install those that are missing, and ask the network nothing when none is.
need_packages() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null | grep -q '^ii' || missing+=("$name")
  done
  ((${#missing[@]})) || return 0
  ((EUID == 0)) || { printf 'missing packages: apt-get install %s\n' "${missing[*]}" >&2; return 77; }
  printf 'Installing %s\n' "${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}
