#!/usr/bin/env bash
# Tries to break Lowtide: runs that are killed, refused by the system, out of disk space or stopped by signals must resume to
# the same bytes; files that were damaged must be refused in one line. Ends with a table; exit code 1 if anything broke.
#
#   scripts/campaign.sh [MINUTES]      default: 10; fractions are allowed
#
# CAMPAIGN_SEED repeats the choices of a campaign (moments of timed kills still vary), CAMPAIGN_JOBS says how many experiments
# go on at once (default: the number of cores), CAMPAIGN_KEEP a folder that is kept. What broke stays in any case.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=${1:-10}
[[ $minutes =~ ^[0-9]+([.][0-9]+)?$ ]] || { echo "campaign: MINUTES is '$minutes'; expected a number" >&2; exit 2; }
export LOWTIDE=${LOWTIDE:-$PWD/build/lowtide}
[ -x "$LOWTIDE" ] || { echo "campaign: $LOWTIDE is missing; run \`make build\` first" >&2; exit 2; }

seed=${CAMPAIGN_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
jobs=${CAMPAIGN_JOBS:-$(nproc)}
work=${CAMPAIGN_KEEP:-$(mktemp -d "${TMPDIR:-/tmp}/lowtide-campaign-XXXXXX")}
mkdir -p "$work"
export work
export OMP_WAIT_POLICY=passive
source scripts/campaign/cases.sh
source scripts/campaign/experiments.sh

echo "campaign: seed $seed, $minutes minutes, $jobs at once, in $work"
make_cases
list_experiments

# One worker: experiments at random until the time is over. A line of its log is: kind, how many, ok or BROKEN, what.
work_until() {
  local until=$1 number=$2
  RANDOM=$(((seed * 31 + number) % 32768))
  export log=$work/log.$number scratch=$work/scratch.$number
  : >"$log"
  while [ "$(date +%s%N)" -lt "$until" ]; do
    rm -rf "$scratch"
    mkdir -p "$scratch"
    "${experiments[RANDOM % ${#experiments[@]}]}" "${cases[RANDOM % ${#cases[@]}]}"
  done
  rm -rf "$scratch"
}

until=$(($(date +%s%N) + $(awk -v m="$minutes" 'BEGIN { printf "%.0f", m * 60 * 1e9 }')))
for ((number = 1; number <= jobs; ++number)); do work_until "$until" "$number" & done
wait

cat "$work"/log.* | awk -F'\t' '
  { tries[$1] += $2; if ($3 == "ok") held[$1] += $2; else { broken[$1] += $2; failed = 1; print "BROKEN: " $1 ": " $4 } }
  END {
    printf "\n| %-44s | %6s | %6s | %6s |\n|---|---|---|---|\n", "what was done", "times", "held", "broke"
    for (kind in tries) printf "| %-44s | %6d | %6d | %6d |\n", kind, tries[kind], held[kind], broken[kind] | "sort"
    close("sort")
    exit failed
  }' || {
  echo "campaign: something broke; CAMPAIGN_SEED=$seed, folders in $work/broken"
  exit 1
}
for reason in "${skipped[@]}"; do echo "SKIPPED: $reason"; done
[ -n "${CAMPAIGN_KEEP:-}" ] || rm -rf "$work"
