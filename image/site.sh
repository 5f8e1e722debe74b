# Sourced by the steps that fetch something. What a site needs (its CA, its mirrors) is read from /run/secrets if it is
# there and never enters the image: ca (a PEM bundle), pip (a pip.conf), uv (a uv.toml), apt (an apt.conf).
site=${TRAINBOX_SITE:-/run/secrets}
if [ -s "$site/ca" ]; then
    export SSL_CERT_FILE="$site/ca" PIP_CERT="$site/ca" UV_SYSTEM_CERTS=1
fi
[ ! -s "$site/pip" ] || export PIP_CONFIG_FILE="$site/pip"
[ ! -s "$site/uv" ] || export UV_CONFIG_FILE="$site/uv"

apt() {
    set -- -qq -o APT::Sandbox::User=root "$@"
    [ ! -s "$site/ca" ] || set -- -o Acquire::https::CAInfo="$site/ca" "$@"
    [ ! -s "$site/apt" ] || set -- --config-file "$site/apt" "$@"
    DEBIAN_FRONTEND=noninteractive apt-get "$@"
}
