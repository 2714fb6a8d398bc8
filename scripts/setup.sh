#!/usr/bin/env bash
# Installs what Lowtide builds with, what is missing and nothing else: Debian packages, and the packages of the report's
# page from npm. `setup.sh tests` also what make test needs (ONNX Runtime from npm too), `setup.sh checks` what make format and
# make tidy need.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  build-essential cmake ninja-build ccache pkg-config git
  libtorch-dev libgloo-dev libopenblas0-openmp
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libboost-math-dev libsimdjson-dev libcpp-httplib-dev
  zlib1g-dev libjpeg-dev libpng-dev libwebp-dev libexpat1-dev libutf8proc-dev libxxhash-dev
  dataset-fashion-mnist
)
# A Node from elsewhere serves as well, and Debian's npm would not go with it.
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
case "${1:-}" in
  tests)
    packages+=(libgtest-dev libgmock-dev libbenchmark-dev clang libclang-rt-14-dev chromium groff-base strace)
    packages+=(slurm-wlm munge iproute2 openmpi-bin)
    packages+=(python3-dev python3-torch pybind11-dev python3-pytest python3-setuptools python3-pip python3-wheel)
    ;;
  checks) packages+=(clang clang-format clang-tidy libomp-dev) ;;
esac

install_packages() {
  command -v dpkg-query >/dev/null || { echo "setup: not a Debian system; install by hand: ${packages[*]}" >&2; return; }
  local missing=() package status
  for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return

  echo "setup: installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root, or install sudo, to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# install_npm FOLDER WITHOUT [OPTION...]: the packages that the folder's lock file fixes; WITHOUT says what comes of it where
# they cannot be had. A copy of the lock file beside the packages tells which they are.
install_npm() {
  local folder=$1 without=$2
  shift 2
  cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed-lock" && return
  command -v npm >/dev/null || { echo "setup: npm is missing; $without" >&2; return; }
  echo "setup: npm ci in $folder/"
  if (cd "$folder" && npm ci --no-progress "$@" >/dev/null); then
    cp "$folder/package-lock.json" "$folder/node_modules/.installed-lock"
  else
    echo "setup: npm ci failed; $without" >&2
  fi
}

install_packages
install_npm web "the program is built without the report's page"
# Its own script would fetch libraries for GPUs; that for the CPU is in the package.
if [ "${1:-}" = tests ]; then install_npm tests/export "exported networks are not run in ONNX Runtime" --ignore-scripts; fi
