#!/usr/bin/env bash
# Installs the appliance on this machine, or brings an installed one up to date.
set -euo pipefail
umask 022

usage() {
  cat <<'END'
usage: scripts/install.sh [options]            install or upgrade (root)
       scripts/install.sh --rollback           go back to the release before (root)
       scripts/install.sh --uninstall [--purge]  remove it (root); twice is fine
       scripts/install.sh --download DIR       only fetch the wheels, for an install without network

  --wheels DIR     look for wheels in DIR too; an appliance wheel there is installed as it is,
                   without one it is built from this checkout
  --no-index       use nothing but DIR: works without network
  --no-embedded    leave out the engine and the small model (130 MB) that the embedded profiles run
  --embedded       fail where they cannot be had; without either option they are left out there
  --python PATH    the interpreter; default /usr/bin/python3 (3.11 or newer)
  --purge          with --uninstall: also profiles, settings, state, users and groups

Where systemd is not running (a chroot, an image being built) units are enabled and not started.
An upgrade leaves a running model alone: the supervisor is restarted, and the gateway hands over to a
new process while the old one ends the answers that are under way.
END
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here checkout=${here%/*} requirements=$here/requirements
readonly prefix=/opt/appliance
readonly unit_dir=/usr/local/lib/systemd/system
readonly sysusers=/usr/local/lib/sysusers.d/appliance.conf
readonly tmpfiles=/usr/local/lib/tmpfiles.d/appliance.conf
readonly catalog=/usr/local/lib/systemd/catalog/appliance.catalog
readonly share=/usr/local/share
readonly bash_completion=$share/bash-completion/completions/appliance
readonly zsh_completion=$share/zsh/site-functions/_appliance
readonly man_pages=$share/man/man1
# fish reads below /usr/local only where XDG_DATA_DIRS says so, which it does not in a session over ssh.
readonly fish_completion=/etc/fish/completions/appliance.fish
readonly enabled_units=(appliance-supervisor.socket appliance-request.socket appliance-status.socket
  appliance-token.socket appliance-jobs.socket appliance-supervisor.service appliance-boot.service appliance-gateway.socket
  appliance-lane.socket appliance-gateway.service appliance-health.socket appliance-health.service
  appliance-auditor.socket appliance-checker.socket appliance-notifier.socket appliance-view.socket
  appliance-web.socket appliance-prompt.socket)
readonly service_users=(appliance appliance-gateway appliance-health appliance-auditor appliance-checker
  appliance-notifier appliance-web appliance-backend)
readonly health=appliance-health.service
readonly gateway=appliance-gateway.service
readonly daemon_drop_ins=(/etc/systemd/system/appliance-{gateway.socket,gateway.service,web.socket}.d/50-applied.conf)

python=/usr/bin/python3
wheels=
index=(--quiet --quiet --disable-pip-version-check --no-cache-dir)
embedded=auto
work=

say() { printf '%s\n' "$*"; }
die() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
booted() { [[ -d /run/systemd/system ]]; } # sd_booted(3)
need_root() { ((EUID == 0)) || { printf 'install.sh: this needs root: sudo %s\n' "$0" >&2; exit 77; }; }

one_at_a_time() {
  install -d -m 755 "$prefix"
  exec 9<"$prefix"
  flock -n 9 || { printf 'install.sh: another one is running: wait for it\n' >&2; exit 75; }
}

make_work() {
  work=$(mktemp -d /var/tmp/appliance-install.XXXXXX)
  trap 'rm -rf "$work"' EXIT
}

# --- wheels ---------------------------------------------------------------------------------

check_python() {
  [[ -x $python ]] || die "no $python: apt-get install python3 python3-venv"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$python is older than 3.11: name a newer one with --python"
  "$python" -c 'import ensurepip' 2>/dev/null ||
    die "$python cannot make virtual environments: apt-get install python3-venv"
}

# A service user must reach the interpreter, and cannot where it is below somebody's home.
check_python_is_public() {
  case $("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))') in
    /root/* | /home/*) die "$python is below a home directory, which service users cannot enter" ;;
  esac
}

make_tools() {
  "$python" -m venv "$work/tools"
  pip install --require-hashes -r "$requirements/build.txt"
}

pip() { "$work/tools/bin/pip" "$1" "${index[@]}" "${@:2}"; }

# Wheels of everything in the lock files named, each checked against its hashes; those that come
# as source only are built by the locked build tools.
gather() { pip wheel --wheel-dir "$work/stage" --no-deps --no-build-isolation --require-hashes "$@"; }

gather_embedded() {
  [[ $embedded == no ]] && return
  if gather --only-binary :all: -r "$requirements/embedded.txt" 2>"$work/embedded.log"; then
    embedded=yes
  elif [[ $embedded == yes ]]; then
    die "the embedded engine cannot be had: $(tail -n 1 "$work/embedded.log")"
  else
    embedded=no
    say "Left out the embedded engine: $(tail -n 1 "$work/embedded.log")"
  fi
}

gather_own() {
  local ready=()
  [[ -z $wheels ]] || mapfile -t ready < <(find "$wheels" -maxdepth 1 -name 'appliance-*.whl' | sort -V)
  if ((${#ready[@]})); then
    cp "${ready[-1]}" "$work/stage/"
  else
    pip wheel --wheel-dir "$work/stage" --no-deps --no-build-isolation "$checkout"
  fi
}

download() {
  local directory=$1 stamp
  check_python
  stamp=complete-$( (cat "$requirements"/{build,runtime,embedded}.txt; "$python" -VV; uname -m) | sha256sum | cut -c1-16)
  [[ ! -e $directory/$stamp ]] || return 0
  make_work
  mkdir -p "$directory"
  index+=(--find-links "$directory")
  make_tools
  pip download --dest "$work/new" --no-deps --no-build-isolation --require-hashes \
    -r "$requirements/build.txt" -r "$requirements/runtime.txt" -r "$requirements/embedded.txt"
  find "$directory" -maxdepth 1 -type f \( -name '*.whl' -o -name '*.tar.gz' -o -name 'complete-*' \) -delete
  cp "$work/new/"* "$directory/"
  touch "$directory/$stamp"
}

# --- a release ------------------------------------------------------------------------------

# The version, and what tells two builds of one version apart.
release_name() {
  local own version build
  own=$(find "$work/stage" -name 'appliance-*.whl')
  version=${own##*/appliance-}
  build=$( (sha256sum <"$own"; find "$work/stage" -name '*.whl' -printf '%f\n' | sort; "$python" -VV) | sha256sum)
  printf '%s-%s\n' "${version%%-*}" "${build:0:8}"
}

# make_release DIR: a virtual environment of its own, complete or not there at all.
make_release() {
  [[ ! -e $1/.complete ]] || return 0
  rm -rf "$1"
  "$python" -m venv --without-pip "$1"
  "$work/tools/bin/pip" --python "$1/bin/python" install --quiet --quiet --disable-pip-version-check \
    --no-index --no-deps --no-compile --no-warn-script-location "$work/stage/"*.whl
  write_start_scripts "$1"
  # Service users cannot write here, so what is not compiled now would be compiled at every start.
  "$1/bin/python" -m compileall -q -j 0 "$1/lib"
  chown -R root:root "$1"
  chmod -R go-w "$1"
  touch "$1/.complete"
}

# What people and units start often, in place of pip's script and of `python -m`.
write_start_scripts() { # RELEASE
  local packages
  packages=$("$1/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  write_start_script "$1/bin/appliance" appliance.cli.main
  write_start_script "$1/bin/appliance-gate" appliance.launch.gate
  write_start_script "$1/bin/appliance-backend" appliance.launch.backend
}

# A start script imports neither site, re nor runpy (4 ms together) and names the place of the packages
# itself. Imports make no garbage, and looking for it takes up to 1.4 ms: `run` of the module turns the
# collector on once it has imported what it needs.
write_start_script() { # FILE MODULE; the interpreter is beside FILE
  cat >"$1" <<END
#!${1%/*}/python -IS
import gc
gc.disable()
import sys
sys.path.append("$packages")
from $2 import run
run()
END
  chmod 755 "$1"
}

# The engine is compiled code: it is there and still may not load.
check_embedded() { # RELEASE
  local error
  [[ $embedded == yes ]] || return 0
  error=$("$1/bin/python" -I -c 'import xllamacpp' 2>&1) ||
    say "The embedded engine does not load yet (${error##*$'\n'}); for libgomp: apt-get install libgomp1"
}

# What the wheel carries for the rest of the system: documentation, units/ and profiles/.
installed_files() {
  "$1/bin/python" -I -c 'import appliance, os; print(os.path.dirname(appliance.__file__) + "/_installed")'
}

replace_link() { # atomically: TARGET LINK
  ln -sfn "$1" "$2.new"
  mv -fT "$2.new" "$2"
}

# Keep the current release and the one before; a model started from an older one still reads it.
prune() {
  local release
  for release in "$prefix"/releases/*/; do
    release=${release%/}
    [[ $release -ef $prefix/current || $release -ef $prefix/previous ]] && continue
    grep -qs "$release/" /proc/[0-9]*/maps || rm -rf "$release"
  done
}

# --- the system around it -------------------------------------------------------------------

install_units() { # from DIR
  local unit name
  install -d -m 755 "$unit_dir" "${sysusers%/*}" "${tmpfiles%/*}" "${catalog%/*}"
  install -m 644 "$1/appliance.sysusers.conf" "$sysusers"
  install -m 644 "$1/appliance.tmpfiles.conf" "$tmpfiles"
  install_catalog "$1/appliance.catalog"
  for unit in "$unit_dir"/appliance*; do
    name=${unit##*/}
    [[ -e $1/$name ]] || remove_unit "$unit"
  done
  for unit in "$1"/*.{service,socket,slice,target,path,timer}; do
    [[ ! -e $unit ]] || install -m 644 "$unit" "$unit_dir/"
  done
}

# What journalctl -x explains; an older release may have none.
install_catalog() { # FILE
  if [[ -e $1 ]]; then
    install -m 644 "$1" "$catalog"
  else
    rm -f "$catalog"
  fi
  update_catalog
}

update_catalog() { journalctl --update-catalog 2>/dev/null || say 'journalctl -x will explain nothing: journalctl --update-catalog failed'; }

remove_unit() { # one that this release does not have
  ! booted || systemctl --quiet stop "${1##*/}" 2>/dev/null || true
  systemctl --quiet disable "${1##*/}" 2>/dev/null || true
  rm -f "$1"
}

install_shell() { # from RELEASE
  install -d -m 755 "${bash_completion%/*}" "${zsh_completion%/*}" "${fish_completion%/*}"
  "$1/bin/appliance" completion bash >"$bash_completion"
  "$1/bin/appliance" completion zsh >"$zsh_completion"
  "$1/bin/appliance" completion fish >"$fish_completion"
  replace_link "$prefix/current/bin/appliance" /usr/local/bin/appliance
  install_manual "$1/bin/python"
}

# The pages of this release and no others; an older release may have none.
install_manual() { # PYTHON
  install -d -m 755 "$man_pages"
  remove_manual
  ! "$1" -I -c 'import appliance.cli.manual_pages' 2>/dev/null ||
    "$1" -I -m appliance.cli.manual_pages "$man_pages"
}

remove_manual() { rm -f "$man_pages"/appliance{,-*}.1; }

# From DIR: what units name as their documentation with all it links to, and profiles as examples;
# the profiles in /etc are the operator's.
install_documents() {
  install -d -m 755 /etc/appliance /etc/appliance/profiles
  rm -rf "$share/appliance"
  install -d -m 755 "$share/appliance"
  find "$1" -mindepth 1 -maxdepth 1 ! -name units -exec cp -r -t "$share/appliance" {} +
}

check_service_user() {
  local as=(setpriv --reuid appliance-backend --regid appliance-backend --init-groups)
  "${as[@]}" "$prefix/current/bin/python" -I -c 'import appliance' ||
    die "the user appliance-backend cannot run $prefix/current/bin/python"
}

# activate RELEASE: make it the current one.
activate() {
  local files before
  files=$(installed_files "$1")
  before=$(sockets)
  install_units "$files/units"
  systemd-sysusers "${sysusers##*/}"
  systemd-tmpfiles --create "${tmpfiles##*/}"
  if [[ -e $prefix/current && ! $prefix/current -ef $1 ]]; then
    replace_link "$(readlink "$prefix/current")" "$prefix/previous"
  fi
  replace_link "releases/${1##*/}" "$prefix/current"
  install_shell "$1"
  install_documents "$files"
  check_service_user
  enable_units
  ! booted || start "$([[ $before == "$(sockets)" ]] || echo changed)"
}

sockets() { cat "$unit_dir"/appliance-*.socket 2>/dev/null || true; }

enable_units() { # those that this release has
  local unit
  for unit in "${enabled_units[@]}"; do
    [[ ! -e $unit_dir/$unit ]] || systemctl --quiet enable "$unit"
  done
}

# start CHANGED: bring everything up on what is now installed; not empty: a socket changed. Sockets stop
# before their services: a connection would start one again, and systemd opens no socket of a running one.
start() {
  systemctl daemon-reload
  if [[ -n $1 ]]; then
    systemctl stop appliance-{supervisor,request,token,status,jobs,gateway,lane,prompt,health,view,auditor,checker,notifier,web}.socket 2>/dev/null || true
    systemctl stop appliance-{supervisor,gateway,jobs,health,auditor,checker,notifier,web}.service 2>/dev/null || true
  fi
  systemctl start appliance-supervisor.socket
  local unit
  for unit in appliance-{request,token,status,jobs,lane,prompt,view,auditor,checker,notifier,web}.socket; do
    [[ ! -e $unit_dir/$unit ]] || systemctl start "$unit"
  done
  # Their sockets start them again, from this release.
  systemctl stop appliance-{jobs,auditor,checker,notifier,web}.service 2>/dev/null || true
  reapply
  start_gateway
  systemctl restart appliance-supervisor.service || {
    journalctl --no-pager -n 20 -u appliance-supervisor.service >&2
    die "the supervisor does not start (its log is above); $0 --rollback goes back"
  }
  start_health
}

# Nothing depends on the health agent: an installation without it serves as well.
start_health() {
  [[ -e $unit_dir/$health ]] || return 0
  systemctl restart "$health" || say "The health agent does not start: journalctl -u $health"
}

# A gateway that runs hands over to a process of this release; clients notice nothing.
start_gateway() {
  [[ -e $unit_dir/$gateway ]] || return 0
  systemctl start appliance-gateway.socket
  local main
  main=$(systemctl show -P MainPID "$gateway")
  if ! systemctl --quiet is-active "$gateway"; then
    systemctl start "$gateway" || gateway_failed
    return
  fi
  systemctl reload "$gateway"
  for _ in {1..100}; do
    [[ $(systemctl show -P MainPID "$gateway") == "$main" ]] || return 0
    sleep 0.2
  done
  gateway_failed
}

gateway_failed() {
  journalctl --no-pager -n 20 -u "$gateway" >&2
  die "the gateway does not start (its log is above); $0 --rollback goes back"
}

# Units rendered by the release before may differ; this restarts no model.
reapply() {
  [[ -e /var/lib/appliance-applied/manifest.json ]] || return 0
  "$prefix/current/bin/appliance" apply ||
    say 'The units are as they were before: see above, then appliance apply'
}

install_appliance() {
  need_root
  one_at_a_time
  check_python
  check_python_is_public
  command -v systemctl >/dev/null || die 'no systemd on this machine'
  [[ -z $wheels ]] || index+=(--find-links "$wheels")
  make_work
  make_tools
  gather -r "$requirements/runtime.txt"
  gather_embedded
  gather_own
  local release
  release=$prefix/releases/$(release_name)
  install -d -m 755 "$prefix/releases"
  make_release "$release"
  check_embedded "$release"
  activate "$release"
  prune
  say "Installed appliance ${release##*/} in $prefix."
  say "Operators: usermod -aG appliance-operators,systemd-journal NAME (the journal is for: appliance logs)."
  say "Next: a profile in /etc/appliance/profiles (examples: $share/appliance/profiles), then: appliance apply"
}

rollback() {
  need_root
  one_at_a_time
  [[ -e $prefix/previous/.complete ]] || die 'there is no release before this one'
  activate "$(readlink -f "$prefix/previous")"
  # The link now names the release that was left: a second --rollback would go forward to it.
  rm -f "$prefix/previous"
  say "Back on appliance $(basename "$(readlink "$prefix/current")")."
}

# --- and away again -------------------------------------------------------------------------

stop_everything() {
  booted || return 0
  # The hold conflicts with every backend: starting it stops them all, in good order.
  systemctl start appliance-hold.service 2>/dev/null || true
  # What starts the others first: a connection to an open socket would start a stopped service again.
  systemctl stop 'appliance-*.socket' 'appliance-*.timer' 2>/dev/null || true
  systemctl stop 'appliance-*' 2>/dev/null || true
}

uninstall() { # "purge", or nothing
  need_root
  one_at_a_time
  stop_everything
  systemctl --quiet disable "${enabled_units[@]}" 2>/dev/null || true
  rm -f /etc/systemd/system/appliance-{backend,build}-*.service /etc/polkit-1/rules.d/50-appliance.rules \
    "${daemon_drop_ins[@]}"
  rmdir "${daemon_drop_ins[@]%/*}" 2>/dev/null || true
  rm -f "$unit_dir"/appliance* "$sysusers" "$tmpfiles" "$catalog"
  update_catalog
  rm -f /usr/local/bin/appliance "$bash_completion" "$zsh_completion" "$fish_completion"
  rmdir --parents --ignore-fail-on-non-empty "${fish_completion%/*}" 2>/dev/null || true
  remove_manual
  rm -rf "$prefix" "$share/appliance" /var/lib/appliance-applied \
    /var/cache/appliance-{supervisor,health,web} /run/appliance \
    /run/appliance-{backend,claimed,gate,gateway,leases,run,supervisor}
  [[ -z ${1:-} ]] || purge
  if booted; then
    systemctl daemon-reload
    systemctl reset-failed 'appliance-*' 2>/dev/null || true
  fi
  say "Removed.$([[ -n ${1:-} ]] || echo ' Profiles (/etc/appliance) and state (/var/lib/appliance) are still there: --purge')"
}

purge() {
  local name
  rm -rf /etc/appliance /var/lib/appliance /var/lib/appliance-health /var/{lib,cache}/appliance-backend \
    /var/{lib,cache}/private/appliance-backend \
    /etc/systemd/system/appliance-backend-*.service.d /etc/systemd/system/appliance-{gateway,web}.*.d ||
    say 'Not all of it could be removed: see above'
  for name in "${service_users[@]}"; do
    ! getent passwd "$name" >/dev/null || userdel "$name"
  done
  for name in "${service_users[@]}" appliance-operators appliance-status; do
    ! getent group "$name" >/dev/null || groupdel "$name"
  done
}

main() {
  local action=install_appliance argument=
  while (($#)); do
    case $1 in
      --wheels) wheels=$(realpath -e "${2:?--wheels needs a directory}"); shift ;;
      --no-index) index+=(--isolated --no-index) ;;
      --embedded) embedded=yes ;;
      --no-embedded) embedded=no ;;
      --python) python=${2:?--python needs a path}; shift ;;
      --download) action=download argument=${2:?--download needs a directory}; shift ;;
      --rollback) action=rollback ;;
      --uninstall) action=uninstall ;;
      --purge) argument=purge ;;
      -h | --help) usage; return ;;
      *) usage >&2; return 2 ;;
    esac
    shift
  done
  if [[ $argument == purge && $action != uninstall ]]; then
    usage >&2
    return 2
  fi
  "$action" ${argument:+"$argument"}
}

# Tests read the functions alone.
[[ ${BASH_SOURCE[0]} != "$0" ]] || main "$@"
