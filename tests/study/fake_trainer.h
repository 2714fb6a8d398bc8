#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "lowtide/study/study.h"

namespace lowtide {

// A program that stands in for `lowtide train --recipe FILE --out DIR --resume --threads N [--gpu-memory SHARE]`. What it does
// depends on the name of the run's folder: one that begins with
//   fails   prints a line of output and one of error, and ends with code 2
//   refused ends with code 75, as training does that finds a lease held
//   silent  ends with code 0 and no result
//   dies    is ended by SIGKILL
//   hungry  likewise, and the file `vmstat` beside the run folders counts it as ended for want of memory
//   told    is stopped by a SIGTERM of somebody else: it saves, and ends with 143
//   waits   runs until SIGUSR1 or SIGTERM stops it, saves, and ends with 128 + the signal; started again, it finishes
//   slow    waits as well, but has not made a step, and saves nothing
//   struck  is ended by a SIGTERM that its parent has a moment later
//   late    is as `waits`, and takes a while to save
// and any other finishes at once. Every call is added to `calls` beside the run folders.
inline std::filesystem::path write_fake_trainer(const std::filesystem::path& path) {
  std::ofstream(path) << R"sh(#!/bin/sh
out=$5
name=$(basename "$out")
echo "$name threads=$8 $1 $2 $4 $6${9:+ $9 ${10}}" >> "$out/../calls"
start() {
  echo '{"format":1,"recipe":{"model":"net"},"schedule":"CR 3:8 n=8 grad=8","seed":1}' > "$out/run.json"
}
finish() {
  start
  echo '{"step":20,"loss":1.0,"accuracy":0.1,"seconds":1}' > "$out/metrics.jsonl"
  echo '{"step":40,"loss":0.9,"accuracy":0.3,"seconds":2}' >> "$out/metrics.jsonl"
  cat > "$out/result.json" << END
{"metric":"accuracy","test":0.5,"valid":null,"relative_cost":0.04,"gbitops":{"paper":1.0,"actual":1.0},
 "seconds":2,"eval_bits":8,"steps":40}
END
  exit 0
}
save() {
  case "$name" in late*) sleep 0.5 ;; esac
  mkdir -p "$out/checkpoints"
  touch "$out/checkpoints/step-00000030.safetensors"
  echo "saved"
  exit "$1"
}
case "$name" in
  refused*) echo "lowtide: another process is writing this run" >&2; exit 75 ;;
  fails*) echo "reading"; echo "lowtide: no such data" >&2; exit 2 ;;
  silent*) exit 0 ;;
  dies*) echo "about to die"; kill -9 $$ ;;
  hungry*) printf 'nr_free_pages 7\noom_kill 3\n' > "$out/../vmstat"; echo "taking all"; kill -9 $$ ;;
  told*) echo "stopped at step 30"; exit 143 ;;
  struck*) (sleep 0.03; kill -TERM $PPID) & kill -TERM $$ ;;
  slow*)
    trap 'exit 138' USR1
    touch "$out/ready"
    while true; do sleep 0.02; done ;;
  waits* | late*)
    [ -d "$out/checkpoints" ] && finish
    trap 'save 138' USR1
    trap 'save 143' TERM
    start
    echo '{"step":35,"loss":1.0,"accuracy":0.1,"seconds":7}' > "$out/metrics.jsonl"
    touch "$out/ready"
    while true; do sleep 0.02; done ;;
  *) finish ;;
esac
)sh";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

inline Member fake_member(const std::string& name) {
  Recipe recipe;
  recipe.data.dir = "data";
  recipe.training.steps = 40;
  return {name, name, std::nullopt, recipe};
}

// False if it did not come true within a time that is ample even on a loaded machine.
inline bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace lowtide
