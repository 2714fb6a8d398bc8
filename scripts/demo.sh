#!/usr/bin/env bash
# The same small network in full precision, in static 8 bits and on a cyclic schedule, on real images; then a table and a
# report.
# LOWTIDE_DEMO_STEPS makes it shorter. Interrupted, it goes on where it was.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=${LOWTIDE_DEMO_STEPS:-2000}
runs=()
for schedule in fp32 static CR; do
  run=runs/demo-$schedule-$steps
  runs+=("$run")
  echo
  echo "== $schedule"
  build/lowtide train --recipe recipes/demo.toml --schedule "$schedule" --steps "$steps" --out "$run" --resume
done

echo
build/lowtide compare "${runs[@]}"
echo
echo "The time is this machine's: with AVX-512 VNNI products are of bytes, elsewhere codes are multiplied as floats."
echo "The runs are in runs/; tensorboard --logdir runs shows their curves."
echo
if build/lowtide report "${runs[@]}" --html runs/demo.html >/dev/null; then
  echo "The report of these runs, a page for the browser: $PWD/runs/demo.html"
fi
