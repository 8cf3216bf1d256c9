#!/bin/sh
# Checks that the named commands are there; as root on Debian or Ubuntu it installs what is missing.
# usage: system.sh python|tmux|ssh|sshd|gcc|chromium ...
set -eu
PATH="$PATH:/usr/sbin:/sbin"

present() {
    case "$1" in
    python)
        for python in python3 python3.13 python3.12 python3.11; do
            "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return 0
        done
        return 1
        ;;
    gcc) printf '#include <stdio.h>\n' | gcc -E -x c - >/dev/null 2>&1 ;;
    chromium)
        command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null
        ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

packages_of() {
    case "$1" in
    python) echo python3 python3-venv ;;
    ssh) echo openssh-client ;;
    sshd) echo openssh-server ;;
    gcc) echo gcc libc6-dev ;;
    *) echo "$1" ;;
    esac
}

missing=""
packages=""
for need in "$@"; do
    present "$need" && continue
    missing="$missing $need"
    packages="$packages $(packages_of "$need")"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    echo "system: installing$packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of words
    apt-get install -y -qq --no-install-recommends $packages >/dev/null
    still=""
    for need in $missing; do
        present "$need" || still="$still $need"
    done
    [ -z "$still" ] && exit 0
    missing="$still"
fi

echo "system: missing:$missing" >&2
echo "system: on Debian or Ubuntu: sudo apt-get install$packages" >&2
echo "system: elsewhere install tmux, the OpenSSH client and server, a C compiler, Chromium and Python 3.11+ with venv" >&2
exit 2
