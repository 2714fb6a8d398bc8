#!/usr/bin/env bash
# Installs the Debian packages that Lowtide builds with, those that are missing and no others; `setup.sh checks` also
# those of make format and make tidy.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config git
  libtorch-dev libopenblas-dev libdnnl-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev
  zlib1g-dev libjpeg-dev libpng-dev libexpat1-dev libutf8proc-dev
  libgtest-dev libbenchmark-dev
  clang libclang-rt-14-dev
  dataset-fashion-mnist
)
if [ "${1:-}" = checks ]; then packages+=(clang-format clang-tidy libomp-dev); fi

command -v dpkg-query >/dev/null || { echo "setup: not a Debian system; install by hand: ${packages[*]}" >&2; exit 0; }

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "setup: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: run as root, or install sudo, to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
