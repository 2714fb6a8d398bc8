#!/usr/bin/env bash
# How long the report of many runs takes: RUNS run folders of LINES logged lines each, of made-up numbers, in a temporary
# folder (200 of 50000 are 2.7 GB, and take some minutes to make).
#   scripts/report-speed.sh [RUNS] [LINES]
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
build/tests/report/make_runs many "$folder/runs" "${1:-200}" "${2:-50000}"
du -sh "$folder/runs"
time build/lowtide report "$folder/runs" --html "$folder/report.html"
