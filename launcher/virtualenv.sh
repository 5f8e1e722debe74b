# shellcheck shell=bash
# The virtualenv in .venv: the locked packages, and the wheel of this checkout.

venv=$root/.venv

# What a complete .venv was made from and for. An interpreter that the system has replaced reads as another one.
venv_note() { printf '%s %s %s %s' "$sources" "$variant" "$venv" "$(readlink -f "$venv/bin/python")"; }

venv_is_ready() {
    local want
    want=$(venv_note)
    case $(cat "$root/.trainbox/venv" 2>/dev/null) in
    "$want$1" | "$want dev") [ -x "$venv/bin/trainbox" ] ;;
    *) return 1 ;;
    esac
}

# prepare_venv ['' | ' dev']: .venv holds what trainbox needs, and with " dev" what its tests need.
prepare_venv() {
    local with=${1-}
    ! venv_is_ready "$with" || return 0
    take_turn
    venv_is_ready "$with" || set_up_venv "$with"
    end_turn
}

set_up_venv() {
    local with=$1 last python uv
    last=$(cat "$root/.trainbox/venv" 2>/dev/null) || last=missing
    [ "$last" != missing ] || [ ! -e "$venv" ] || fail "$venv is not of trainbox's making: move it away, or choose TRAINBOX_RUNTIME=docker"
    # Not taken out again for the next training: the two would turn by turn undo each other.
    case $last in *' dev') with=' dev' ;; esac
    find_python
    note venv unfinished
    # Brought up to date where it stands, unless it was left unfinished or the system has replaced its interpreter.
    if [ ! -x "$venv/bin/python" ] || [[ $last != *" $venv $(readlink -f "$venv/bin/python")"* ]]; then
        must "$python" -m venv --clear --without-pip "$venv"
    fi
    find_uv
    install_packages "$with"
    note venv "$(venv_note)$with"
}

# Sets `python`.
find_python() {
    for python in python3 python3.13 python3.12 python3.11; do
        ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || return 0
    done
    fail "needs Python 3.11, 3.12 or 3.13 and found $(python3 --version 2>&1 | head -n 1): apt-get install python3"
}

# Sets `uv`: the machine's, else the locked one, installed by the machine's pip or by the one that Python carries.
find_uv() {
    local pip=("$python" -m pip --python "$venv/bin/python")
    for uv in "$venv/bin/uv" "$(command -v uv)"; do
        ! "$uv" --version >/dev/null 2>&1 || return 0
    done
    if ! "$python" -c 'import pip' 2>/dev/null; then
        "$python" -c 'import ensurepip' 2>/dev/null ||
            fail 'needs pip or uv to install packages, and this Python has neither: apt-get install python3-venv'
        must "$venv/bin/python" -m ensurepip
        pip=("$venv/bin/python" -m pip)
    fi
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0
    must "${pip[@]}" install --quiet --require-hashes --requirement "$root/requirements/bootstrap.txt"
    uv=$venv/bin/uv
}

# The index, the certificates and a place for the cache, as the machine has them.
prepare_uv() {
    local cache index
    # uv does not read pip's configuration.
    index=${PIP_INDEX_URL:-$("$python" -m pip config get global.index-url 2>/dev/null)} || index=
    [ -z "$index" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
    # A site's own authority, as behind a proxy that inspects TLS, is among the system's, or pip has been told of it.
    export UV_SYSTEM_CERTS=1
    [ -z "${SSL_CERT_FILE:-${PIP_CERT-}}" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
    cache=$("$uv" cache dir)
    if ! mkdir -p "$cache" 2>/dev/null || [ ! -w "$cache" ]; then
        export UV_CACHE_DIR=$root/.trainbox/uv
    elif [ "$(stat -c %d "$cache")" != "$(stat -c %d "$venv")" ]; then
        export UV_LINK_MODE=copy
    fi
}

install_packages() {
    local files=("$root/requirements/$variant.txt" "$root/requirements/bootstrap.txt") wheels=$root/.trainbox/wheels
    [ -z "$1" ] || files+=("$root/requirements/dev.txt")
    [ -n "$dry_run" ] || prepare_uv
    # promise is published as source only; what builds it is locked too.
    must "$uv" pip sync --python "$venv/bin/python" --require-hashes --only-binary :all: --no-binary promise \
        --build-constraints "$root/requirements/bootstrap.txt" "${files[@]}"
    [ -n "$dry_run" ] || rm -rf "$wheels"
    must "$uv" build --quiet --wheel --python "$venv/bin/python" --no-build-isolation --out-dir "$wheels" "$root"
    must "$uv" pip install --quiet --python "$venv/bin/python" --no-deps --reinstall "$wheels"/trainbox-*.whl
}

run_in_venv() {
    unset PYTHONPATH PYTHONHOME
    # The wheel does not know it; the run's manifest keeps it.
    TRAINBOX_REVISION=$(revision)
    export TRAINBOX_REVISION
    become "$venv/bin/trainbox" "${words[@]}"
}

# The tests run in the virtualenv; those of the images call this machine's engine and Apptainer, and say if they are skipped.
run_tests() {
    prepare_venv ' dev'
    export PATH=$venv/bin:$PATH
    cd "$root"
    # A file's tests stay together: they share what is expensive to make.
    # In the order of the folders, the longest files first; by itself it would begin with those of many tests.
    become "$venv/bin/pytest" --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@"
}
