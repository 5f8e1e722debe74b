# shellcheck shell=bash
# Docker and Apptainer: whether they can run trainbox here, and the flags that they need for it.

# Variables that reach the job in a container; other ones stay out, since a host's paths mean nothing there.
passed='^(TRAINBOX_[A-Z0-9_]+|SLURM_[A-Z0-9_]+|NCCL_[A-Z0-9_]+|TF_[A-Z0-9_]+|XLA_FLAGS|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER)|(NO|FORCE)_COLOR|TERM)$'
# Those that only the launcher and the tests read, or that are other ones inside.
kept='^TRAINBOX_(RUNTIME|VARIANT|BASE|IMAGE|SIF|REQUIRE|DATA_DIR|OUTPUT_DIR)$'

passed_variables() {
    local name
    while read -r name; do
        if [[ $name =~ $passed && ! $name =~ $kept ]]; then printf '%s\n' "$name"; fi
    done < <(compgen -e)
}

# Sets `mounts`, as Docker and Apptainer both write them, and `workdir`, `data` and `output`.
plan_mounts() {
    local name path
    mounts=() workdir=$PWD
    # The same path as outside, so that FILE.py:FUNCTION means the same file, unless it would hide a part of the image.
    case $PWD/ in
    / | /bin/* | /data/* | /dev/* | /etc/* | /lib*/* | /output/* | /proc/* | /run/* | /sbin/* | /sys/* | /usr/*) workdir=/work ;;
    esac
    add_mount "$PWD" "$workdir" ,readonly
    for name in model callbacks config; do
        path=$(option "$name")
        [ -f "$path" ] || path=${path%:*}
        [ -f "$path" ] || continue
        path=$(dirname "$(realpath "$path")")
        case $path/ in "$PWD"/*) ;; *) add_mount "$path" "$path" ,readonly ;; esac
    done
    data=$(folder data) output=$(folder output)
    add_mount "$data" /data
    add_mount "$output" /output
    # A flag beats TRAINBOX_DATA_DIR=/data, so its path must exist inside too.
    [ -z "$(flag data-dir)" ] || add_mount "$data" "$data"
    [ -z "$(flag output-dir)" ] || add_mount "$output" "$output"
}

# add_mount SOURCE TARGET [OPTIONS]: the value is read as CSV.
add_mount() {
    local source=src=$1 target=dst=$2
    case $1$2 in *[,\"]*) source=\"${source//\"/\"\"}\" target=\"${target//\"/\"\"}\" ;; esac
    mounts+=(--mount "type=bind,$source,$target${3-}")
}

base_image() {
    local base
    base=$(setting base)
    printf '%s' "${base:-$(sed -n 's/^ARG BASE=//p' "$root/Dockerfile")}"
}

# What a build must trust: a site's own authority, as behind a proxy that inspects TLS, is among the machine's.
certificates() {
    local file
    for file in "${SSL_CERT_FILE-}" "${PIP_CERT-}" /etc/ssl/certs/ca-certificates.crt; do
        [ ! -s "$file" ] || { printf '%s' "$file" && return; }
    done
}

# Sets `image` and, if it is there, `digest`.
prepare_docker() {
    local base told
    told=$(setting image)
    image=${told:-trainbox:$variant}
    reason='Docker is not installed'
    command -v docker >/dev/null || return 1
    if digest=$(timeout 20 docker image inspect --format '{{.Id}}' "$image" 2>&1); then
        ! outdated "docker-$variant" || build_docker_image "$(base_image)"
        return
    fi
    reason='Docker has no engine that answers'
    [[ ${digest,,} == *'no such image'* ]] || return 1
    [ -n "$told" ] || ! take_latest || return 0
    base=$(base_image)
    reason="Docker has neither $image nor its base $base"
    has_docker_base "$base" && build_docker_image "$base"
}

# trainbox:latest, which `docker build -t trainbox .` makes, if it serves this machine: a GPU image serves every one.
take_latest() {
    local found
    found=$(timeout 20 docker image inspect --format '{{.Id}} {{index .Config.Labels "trainbox.variant"}}' trainbox:latest 2>/dev/null) ||
        return 1
    case ${found#* } in gpu | "$variant") ;; *) return 1 ;; esac
    image=trainbox:latest digest=${found% *}
}

# Whether the base is there or can be fetched. A registry that did not have it is not asked at every start.
has_docker_base() {
    ! docker image inspect "$1" >/dev/null 2>&1 || return 0
    [ -n "$(setting runtime)" ] || ! noted no-docker-base "$1" || return 1
    ! timeout 60 docker manifest inspect "$1" >/dev/null 2>&1 || return 0
    note no-docker-base "$1"
    return 1
}

build_docker_image() {
    local ca date command=(docker build --target "$variant" --tag "$image" --build-arg "BASE=$1" --build-arg "REVISION=$(revision)")
    reason="Docker cannot build $image"
    command+=(--build-arg "VERSION=$(assigned "$root/src/trainbox/__init__.py" __version__)")
    command+=(--build-arg "LOCK=$(sha256sum <"$root/requirements/$variant.txt" | cut -d ' ' -f 1)")
    # Dated by the commit and without attestations, which hold the time: the same files give the same digest.
    date=$(commit_date)
    [ -z "$date" ] || command+=(--provenance=false --build-arg "SOURCE_DATE_EPOCH=$date")
    ca=$(certificates)
    [ -z "$ca" ] || command+=(--secret "id=ca,src=$ca")
    take_turn
    step "${command[@]}" "$root" || return 1
    note "docker-$variant" "$sources"
    end_turn
    digest=$([ -n "$dry_run" ] || docker image inspect --format '{{.Id}}' "$image")
}

run_in_docker() {
    local name command=(docker run --rm --hostname "$(uname -n)" --user "$(docker_user)" --read-only --tmpfs /tmp --shm-size 1g)
    plan_mounts
    if [ -t 0 ] && [ -t 1 ]; then command+=(--interactive --tty); fi
    [ "$variant" != gpu ] || command+=(--gpus all)
    ! is_cached "$data" "$output" || command+=(--network none)
    for name in $(passed_variables); do command+=(--env "$name"); done
    # An image cannot know its own name and digest; the run's manifest keeps them.
    command+=(--env TRAINBOX_DATA_DIR=/data --env TRAINBOX_OUTPUT_DIR=/output --env "TRAINBOX_IMAGE=$image")
    [ -z "$digest" ] || command+=(--env "TRAINBOX_IMAGE_DIGEST=$digest")
    become "${command[@]}" "${mounts[@]}" --workdir "$workdir" "$image" "${words[@]}"
}

# The caller's, except that a rootless engine's root is the caller already.
docker_user() {
    local user
    user=$(id -u):$(id -g)
    [ "$user" = 0:0 ] || [[ $(docker info --format '{{.SecurityOptions}}' 2>/dev/null) != *name=rootless* ]] || user=0:0
    printf '%s' "$user"
}

# Sets `sif`.
prepare_apptainer() {
    sif=$(setting sif)
    sif=$(realpath -m "${sif:-$root/trainbox.sif}")
    reason='Apptainer is not installed'
    command -v apptainer >/dev/null || return 1
    [ ! -f "$sif" ] || outdated sif || return 0
    build_sif
}

build_sif() {
    local ca base new=$root/.trainbox/new.sif command=(env -C "$root" apptainer build --force)
    reason="Apptainer cannot build $sif"
    base=$(setting base)
    case $base in
    '') ;;
    *.tar) command+=(--build-arg agent=docker-archive --build-arg "base=$(realpath -m "$base")") ;;
    *) command+=(--build-arg "base=$base") ;;
    esac
    ca=$(certificates)
    [ -z "$ca" ] || command+=(--bind "$ca:/run/secrets/ca")
    take_turn
    step "${command[@]}" --build-arg "variant=$variant" --build-arg "revision=$(revision)" \
        --mksquashfs-args '-comp zstd -Xcompression-level 3' "$new" apptainer.def || return 1
    step mv "$new" "$sif"
    note sif "$sources"
    end_turn
}

run_in_apptainer() {
    local name command=(env)
    # Through the environment, because Apptainer's --env splits values at commas.
    for name in $(passed_variables); do command+=("APPTAINERENV_$name=${!name}"); done
    command+=(APPTAINERENV_TRAINBOX_DATA_DIR=/data APPTAINERENV_TRAINBOX_OUTPUT_DIR=/output)
    plan_mounts
    command+=(apptainer run --cleanenv --no-home --no-mount cwd)
    [ "$variant" != gpu ] || command+=(--nv)
    ! is_cached "$data" "$output" || command+=(--net --network none)
    become "${command[@]}" "${mounts[@]}" --pwd "$workdir" "$sif" "${words[@]}"
}
