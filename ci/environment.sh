# Sourced by the scripts that need this repository's Python environment.
#
# prepare_environment REPOSITORY EXTRAS [ARGUMENTS...]
#   makes the environment unless it is there, and sets $environment to its folder.
#   EXTRAS is what follows the name in a requirement, for example "[test]" or "".
#   ARGUMENTS are those of the calling script: with --json among them, errors go to stdout as JSON, too.
#
# The environment lies in the cache folder, under the digest of what it is made from,
# and refers to the repository, so that changes there count at once.
# A file in it that is written last says that it is complete; a lock keeps two runs apart.

prepare_environment() {
    repository=$1
    extras=$2
    shift 2
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail_missing python3 "$@"
    cache=${NUMAMIRROR_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:?is not set}/.cache}/numamirror-build}
    inputs="$repository $extras $(command -v "$python") $("$python" --version)"
    key=$({ echo "$inputs"; cat "$repository/pyproject.toml" "$repository/ci/environment.sh"; } | sha256sum)
    environment=$cache/environments/$(printf %.20s "$key")
    [ -e "$environment/complete" ] || make_environment "$@"
    touch "$environment/complete" 2>/dev/null || : # when it was last used, for `cache prune`
}

make_environment() {
    check_tools "$@"
    echo "numamirror-build: making its own Python environment (once, about a minute)" >&2
    mkdir -p "$cache/environments"
    exec 9>"$environment.lock"
    flock 9
    if [ ! -e "$environment/complete" ]; then
        rm -rf "$environment"
        if ! {
            "$python" -m venv "$environment" &&
                "$environment/bin/python" -m pip --disable-pip-version-check --no-input \
                    install --editable "$repository$extras"
        } >"$environment.log" 2>&1 </dev/null; then
            tail -n 5 "$environment.log" >&2
            fail 12 environment "The Python environment could not be made" "see $environment.log" "$@"
        fi
        : >"$environment/complete"
    fi
    exec 9>&-
}

check_tools() {
    missing=
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail 20 tool-missing "Python 3.10 or newer is needed" "set PYTHON to one" "$@"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
    command -v "${CXX:-c++}" >/dev/null || missing="$missing g++"
    command -v git >/dev/null || missing="$missing git"
    command -v flock >/dev/null || missing="$missing util-linux"
    [ -z "$missing" ] || fail_missing "${missing# }" "$@"
}

# fail_missing PACKAGES [ARGUMENTS...]
fail_missing() {
    packages=$1
    shift
    fail 20 tool-missing "Programs are needed and not installed: $packages" \
        "on Debian or Ubuntu: sudo apt-get install $packages" "$@"
}

# fail CODE KIND WHAT NEXT [ARGUMENTS...]
fail() {
    code=$1 kind=$2 what=$3 next=$4
    shift 4
    printf 'numamirror-build: %s\n  next:  %s\n' "$what" "$next" >&2
    for argument in "$@"; do
        [ "$argument" != --json ] ||
            printf '{"error": "%s", "exit_code": %d, "what": "%s", "next": "%s"}\n' \
                "$kind" "$code" "$what" "$next"
    done
    exit "$code"
}
