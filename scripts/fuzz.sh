#!/usr/bin/env bash
# Builds the fuzz targets of every parser and runs each in brief, from its seeds in fuzz/corpus and with the words of its
# format in fuzz/dictionaries. LOWTIDE_FUZZ_SECONDS says how long (2 seconds a target). Arguments name the targets to run;
# none means all.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${LOWTIDE_FUZZ_SECONDS:-2}
case $seconds in '' | *[!0-9]* | 0*)
  # libFuzzer reads 0 as "for ever".
  echo "fuzz: LOWTIDE_FUZZ_SECONDS is '$seconds'; expected a whole number of seconds, 1 or more" >&2
  exit 2
  ;;
esac

if ! command -v clang++ >/dev/null; then
  echo "fuzz: SKIPPED, no target was run: clang++ is missing (Debian: apt install clang libclang-rt-14-dev)"
  exit 0
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { cmake --preset fuzz && cmake --build build-fuzz; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "fuzz: the targets do not build" >&2
  exit 1
fi

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  # The declarations are the list: a target once built and since removed stays behind in the build folder.
  mapfile -t targets < <(sed -n 's/^lowtide_fuzz(\([a-z0-9_]*\))$/\1/p' fuzz/CMakeLists.txt)
fi

# One target; what it said is printed whole, at its end, since several run at once.
run_target() {
  target=$1
  # A copy, since libFuzzer adds what it finds: the next run starts from there, and the tree stays clean.
  corpus=build-fuzz/corpus/$target
  findings=build-fuzz/findings/$target
  said=build-fuzz/findings/$target.log
  mkdir -p "$corpus" "$findings"
  if [ -d "fuzz/corpus/$target" ]; then cp -r "fuzz/corpus/$target/." "$corpus"; fi
  # What is nested deep is long, and takes a hundred times the time of other inputs: in brief it is tried once as it is, and
  # changed only where there is time.
  deep=fuzz/corpus/$target/deep
  if [ "$seconds" -lt 30 ]; then rm -f "$corpus/deep"; fi
  words=()
  if [ -f "fuzz/dictionaries/$target.dict" ]; then words=("-dict=fuzz/dictionaries/$target.dict"); fi
  if { [ ! -e "$deep" ] || "build-fuzz/fuzz/fuzz_$target" -timeout=10 "$deep" >"$said" 2>&1; } &&
    "build-fuzz/fuzz/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
      "${words[@]}" -artifact_prefix="$findings/" "$corpus" >"$said" 2>&1; then
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$said")
    printf 'fuzz: %-20s %10s executions\n' "$target" "$executions"
    return
  fi
  tail -n 100 "$said"
  # libFuzzer's own line names the file; a target that did not start has none.
  input=$(sed -n 's/.*Test unit written to //p' "$said" | tail -n 1)
  if [ -n "$input" ]; then
    echo "fuzz: $target FAILED on the input $PWD/$input"
  else
    echo "fuzz: $target FAILED, see above"
  fi
  return 1
}
export -f run_target
export seconds

# xargs goes on after a target that failed, and then exits with 123.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I {} bash -c 'run_target {}' || exit 1
