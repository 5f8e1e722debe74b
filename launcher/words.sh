# shellcheck shell=bash
# What the words, the environment, .env and --config say, as far as the choice of flags for a runtime must know it.

# flag NAME: the value of --NAME among the words; the last one counts.
flag() {
    local word value='' expected=
    for word in "${words[@]}"; do
        if [ -n "$expected" ]; then
            value=$word expected=
        elif [ "$word" = "--$1" ]; then
            expected=yes
        elif [ "${word%%=*}" = "--$1" ]; then
            value=${word#*=}
        fi
    done
    printf '%s' "$value"
}

# assigned FILE NAME: the last value that FILE gives NAME, without its quotes and comment; serves .env and flat TOML.
assigned() {
    [ -f "$1" ] || return 0
    sed -n -E "s/^[[:space:]]*(export[[:space:]]+)?$2[[:space:]]*=[[:space:]]*//p" "$1" | tail -n 1 |
        sed -E -e 's/\r$//' -e 's/^"([^"]*)".*/\1/' -e t -e "s/^'([^']*)'.*/\1/" -e t -e 's/(^|[[:space:]]+)#.*//' -e 's/[[:space:]]+$//'
}

# setting NAME: TRAINBOX_NAME of the environment, else of .env in the current folder.
setting() {
    local name=${1^^}
    name=TRAINBOX_${name//-/_}
    if [ -n "${!name-}" ]; then printf '%s' "${!name}"; else assigned .env "$name"; fi
}

# option NAME: as trainbox resolves it: flag, environment, .env, --config FILE.
option() {
    local value config
    value=$(flag "$1")
    [ -n "$value" ] || value=$(setting "$1")
    if [ -z "$value" ]; then
        config=$(flag config)
        value=$(assigned "${config:-$(setting config)}" "${1//-/[-_]}")
    fi
    printf '%s' "$value"
}

# folder NAME: the absolute path of the data or output folder, made here so that it belongs to the caller.
folder() {
    local path
    path=$(option "$1-dir")
    [ -n "$path" ] || [ "$1" != data ] || path=${TFDS_DATA_DIR-}
    path=${path:-$1}
    path=${path/#\~\//$HOME/}
    [ -n "$dry_run" ] || mkdir -p "$path" 2>/dev/null || fail "cannot make the $1 folder \"$path\": name another with --$1-dir"
    realpath -m "$path"
}

# Whether nothing is left to fetch: the data set is in the wheel, or prepared in the data folder $1. For evaluate and export
# the run in the output folder $2 knows the data set.
is_cached() {
    local dataset version
    # Of the commands on data sets one alone fetches anything.
    case " ${words[*]-} " in *' data prepare '*) return 1 ;; esac
    [ "${words[0]-}" != data ] || return 0
    case ${words[0]-} in
    train | prepare) dataset=$(option dataset) ;;
    *) dataset=$(sed -n -E 's/.*"dataset": *"([^"]+)".*/\1/p' "$2/${words[1]-}/config.json" 2>/dev/null | head -n 1) ;;
    esac
    dataset=${dataset:-digits}
    [ "${dataset%%:*}" != digits ] || return 0
    case $dataset in *:*) version=${dataset##*:} ;; *) version='[0-9]*' ;; esac
    # A folder that is still being prepared is called incomplete.*, so the version must begin with a digit.
    compgen -G "$1/${dataset%%:*}/$version/dataset_info.json" >/dev/null
}
