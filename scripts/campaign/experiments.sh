# Each experiment takes a case and writes lines to $log: kind, how many, ok or BROKEN, what.

experiments=()

list_experiments() {
  experiments=(kill_at_a_moment stop_by_signal change_threads damage_a_run damage_a_run damage_data)
  if command -v strace >/dev/null && strace -qq -e trace=none true 2>/dev/null; then
    experiments+=(kill_in_a_call fail_a_call)
  else
    skipped+=("kills and errors inside system calls: strace is missing, or may not trace")
  fi
  mkdir -p "$work/probe"
  if unshare --mount mount -t tmpfs -o size=64k none "$work/probe" 2>/dev/null; then
    experiments+=(fill_a_disk)
  else
    skipped+=("full disks: no right to mount one")
  fi
}

held() { printf '%s\t%d\tok\t\n' "$1" "${2:-1}" >>"$log"; }

# Keeps the folder, and says what was done.
broke() {
  local kept
  mkdir -p "$work/broken"
  kept=$(mktemp -d "$work/broken/XXXXXX")
  cp -r "$scratch/." "$kept" 2>/dev/null || true
  printf '%s\t1\tBROKEN\t%s (%s)\n' "$1" "$2" "$kept" >>"$log"
}

pick() { echo "${@:RANDOM % $# + 1:1}"; }

# finish KIND CASE RUN COUNT WHAT: after all that was done to it, the run ends with the bytes of the uninterrupted one.
finish() {
  local kind=$1 case=$2 run=$3 count=$4 what=$5
  if ! train "$case" "$run" >"$scratch/finish.log" 2>&1; then
    broke "$kind" "$what, then it does not resume: $(tail -n 1 "$scratch/finish.log")"
  elif [ "$(final_bytes "$run")" != "$(cat "$case/bytes")" ]; then
    broke "$kind" "$what, then it ends with other bytes than $case"
  else
    held "$kind" "$count"
  fi
}

# Killed at random moments, again and again, mostly within the time of a whole run.
kill_at_a_moment() {
  local case=$1 run=$scratch/run kills=0 command process longest
  longest=$(cat "$case/milliseconds")
  command_of "$case" "$run"
  while [ ! -e "$run/result.json" ] && [ $kills -lt 5 ]; do
    "${command[@]}" >"$scratch/log" 2>&1 &
    process=$!
    sleep "$(awk -v r=$RANDOM -v l="$longest" 'BEGIN { printf "%.3f", r / 32768 * l / 1000 }')"
    if kill -KILL $process 2>/dev/null; then kills=$((kills + 1)); fi
    wait $process 2>/dev/null || true
  done
  finish "killed at a moment" "$case" "$run" $kills "$kills kills"
}

calls=(write openat rename renameat renameat2 fsync fdatasync unlink unlinkat mkdir ftruncate close pwrite64 newfstatat lseek)

# traced INJECTION CASE RUN: what the program does with such an injection, threads and all.
traced() {
  local command
  command_of "$2" "$3"
  strace -qq -f -o /dev/null -e trace=all -e "inject=$1" "${command[@]}"
}

kill_in_a_call() {
  local case=$1 run=$scratch/run kills=0 call when
  while [ ! -e "$run/result.json" ] && [ $kills -lt 4 ]; do
    call=$(pick "${calls[@]}")
    when=$((RANDOM % 60 + 1))
    # It ends as it would have where there are fewer calls.
    if traced "$call:signal=KILL:when=$when" "$case" "$run" >"$scratch/log" 2>&1; then break; fi
    kills=$((kills + 1))
  done
  finish "killed inside a system call" "$case" "$run" $kills "killed in $call, call $when, and $kills times in all"
}

# A failed call is told in one line with exit code 2, or does not matter; the run is not lost either way.
fail_a_call() {
  local case=$1 run=$scratch/run call error when code=0
  call=$(pick write openat rename fsync fdatasync unlink mkdir ftruncate getdents64)
  error=$(pick EIO ENOSPC EACCES EMFILE EDQUOT EROFS ENOMEM)
  when=$((RANDOM % 80 + 1))
  [ $((RANDOM % 2)) = 0 ] && when=$when+
  if [ $call = openat ]; then when=$((${when%+} + 250)); fi  # before that the libraries are loaded
  local what="$call fails with $error at call $when"
  traced "$call:error=$error:when=$when" "$case" "$run" >"$scratch/out" 2>"$scratch/err" || code=$?
  local kind="system call that fails"
  if [ $code = 127 ]; then  # the loader's, of a library
    return
  elif [ $code = 2 ] && [ ! -s "$scratch/err" ] && [[ $call$when == write*+ ]]; then  # nothing can be told any more
    finish "$kind" "$case" "$run" 1 "$what"
  elif [ $code -ge 128 ]; then
    broke "$kind" "$what: ended by signal $((code - 128))"
  elif [ $code != 0 ] && ! told_in_one_line "$code" "$scratch/err"; then
    broke "$kind" "$what: exit code $code, $(wc -l <"$scratch/err") lines: $(head -n 1 "$scratch/err")"
  else
    finish "$kind" "$case" "$run" 1 "$what"
  fi
}

# told_in_one_line CODE FILE: exit code 2 and one line of the program's own; the progress of a run goes there as well.
told_in_one_line() {
  [ "$1" = 2 ] && [ "$(grep -c '^lowtide: ' "$2")" = 1 ] && ! grep -q 'internal error\|terminate called\|what():' "$2"
}

fill_a_disk() {
  local case=$1
  local kilobytes=$((RANDOM % 300 + 20)) code=0
  mkdir -p "$scratch/disk"
  export -f train command_of final_bytes
  # In a mount namespace of its own: it is gone with the last process, whatever happens.
  unshare --mount bash -c '
    mount -t tmpfs -o size="$3"k none "$1/disk" || exit 99
    code=0
    train "$2" "$1/disk/run" >"$1/out" 2>"$1/err" || code=$?
    echo $code >"$1/code"
    mount -o remount,size=2g "$1/disk" && train "$2" "$1/disk/run" >"$1/finish.log" 2>&1 && final_bytes "$1/disk/run" >"$1/bytes"
  ' _ "$scratch" "$case" "$kilobytes" || true
  code=$(cat "$scratch/code" 2>/dev/null || echo 99)
  local kind="full disk"
  if [ "$code" != 0 ] && ! told_in_one_line "$code" "$scratch/err"; then
    broke "$kind" "$kilobytes KB for $case: exit code $code: $(tail -n 1 "$scratch/err")"
  elif [ "$(cat "$scratch/bytes" 2>/dev/null)" != "$(cat "$case/bytes")" ]; then
    broke "$kind" "$kilobytes KB for $case: not the same bytes once there is space: $(tail -n 1 "$scratch/finish.log")"
  else
    held "$kind"
  fi
}

# A signal that asks a run to stop: it saves, says so by its exit code, and goes on later.
stop_by_signal() {
  local case=$1 run=$scratch/run command process code=0 signal
  signal=$(pick TERM INT HUP USR1 USR2 XCPU)
  command_of "$case" "$run"
  "${command[@]}" >"$scratch/log" 2>&1 &
  process=$!
  # Before its folder is there it has nothing to save.
  while [ ! -e "$run/run.json" ] && kill -0 $process 2>/dev/null; do sleep 0.02; done
  sleep "0.$((RANDOM % 5))"
  kill -s "$signal" $process 2>/dev/null || true
  wait $process 2>/dev/null || code=$?
  local number
  number=$(kill -l "$signal")
  if [ $code != 0 ] && [ $code != $((128 + number)) ]; then
    broke "stopped by a signal" "$signal: exit code $code"
  elif [ $code != 0 ] && [ ! -e "$run/result.json" ] && ! grep -q 'stopped at step' "$scratch/log"; then
    broke "stopped by a signal" "$signal: it did not save"
  else
    finish "stopped by a signal" "$case" "$run" 1 "$signal"
  fi
}

change_threads() {
  local case=$1 run=$scratch/run threads
  threads=$(pick 1 2 3 4 5 8)
  if ! train "$case" "$run" "$threads" >"$scratch/log" 2>&1; then
    broke "another number of threads" "$threads: $(tail -n 1 "$scratch/log")"
  else
    finish "another number of threads" "$case" "$run" 1 "$threads threads"
  fi
}

# damage FILE SEED: one random change of a file.
damage() {
  perl -e '
    my ($path, $seed) = @ARGV;
    srand($seed);
    open(my $in, "<:raw", $path) or die "$path: $!";
    local $/; my $bytes = <$in>; close($in);
    my $n = length($bytes);
    my $at = $n ? int(rand($n)) : 0;
    my @numbers = ("-1", "0", "1e999", "18446744073709551616", "NaN", "1.5", "\"x\"", "null", "[]", "{}");
    my @changes = (
      sub { substr($bytes, $at, 1) = chr(ord(substr($bytes, $at, 1)) ^ (1 << int(rand(8)))) if $n },
      sub { substr($bytes, $at, 1) = chr(int(rand(256))) if $n },
      sub { $bytes = substr($bytes, 0, $at) },
      sub { substr($bytes, $at, int(rand(64))) = "" if $n },
      sub { substr($bytes, $at, 0) = substr($bytes, int(rand($n + 1)), int(rand(200))) },
      sub { substr($bytes, $at, 0) = ("[" x 100000) },
      sub { substr($bytes, $at, 0) = ("{\"a\":" x 50000) },
      sub { substr($bytes, $at, 0) = "\0" x int(rand(5000)) },
      sub { $bytes = "" },
      sub { my $by = $numbers[rand @numbers]; my @all; push @all, [$-[0], $+[0]] while $bytes =~ /-?\d+(\.\d+)?/g;
            if (@all) { my $one = $all[rand @all]; substr($bytes, $one->[0], $one->[1] - $one->[0]) = $by } },
      sub { my @words; push @words, [$-[0], $+[0]] while $bytes =~ /[a-z_]{3,}/g;
            if (@words) { my $one = $words[rand @words]; substr($bytes, $one->[0], $one->[1] - $one->[0]) = "wrong" } },
    );
    $changes[rand @changes]->();
    open(my $out, ">:raw", $path) or die "$path: $!";
    print $out $bytes; close($out);
  ' "$1" "$2"
}

# answer KIND WHAT COMMAND…: exit code 0, or 2 with one line; within a minute.
answer() {
  local kind=$1 what=$2 code=0
  shift 2
  timeout -s KILL 60 "$@" >"$scratch/out" 2>"$scratch/err" || code=$?
  if [ $code = 0 ]; then return 0; fi
  if told_in_one_line $code "$scratch/err"; then return 2; fi
  broke "$kind" "$what: \`${*##*/}\` has exit code $code: $(head -c 300 "$scratch/err" | head -n 1)"
  return 1
}

# A file of a run is damaged: everything that reads runs refuses or does not mind, and a resumed run refuses or ends with the
# same bytes.
damage_a_run() {
  local case=$1 run=$scratch/run seed=$RANDOM kind="damaged file of a run" file code=0
  cp -r "$case/reference" "$run"
  local finished=1
  if [ $((RANDOM % 2)) = 0 ]; then
    finished=0
    rm -f "$run/result.json" "$(ls "$run"/checkpoints/step-* | tail -n 1)"
  fi
  local files=("$run"/*.json* "$run"/checkpoints/* "$run"/events*)
  file=${files[RANDOM % ${#files[@]}]}
  damage "$file" $seed
  local what="${file#"$run/"} of $case, damaged with $seed"
  case $((RANDOM % 4)) in
    0) answer "$kind" "$what" "$LOWTIDE" compare "$run" "$case/reference" || code=$? ;;
    1) answer "$kind" "$what" "$LOWTIDE" report "$scratch" --html "$scratch/page.html" || code=$? ;;
    2)
      local last
      last=$(ls "$run"/checkpoints/step-* | tail -n 1)
      answer "$kind" "$what" "$LOWTIDE" eval --checkpoint "$last" --threads 1 || code=$?
      if [ $code = 0 ] && ! cmp -s "$last" "$case/reference/checkpoints/${last##*/}"; then
        broke "$kind" "$what: it is evaluated all the same"
        return
      fi
      ;;
    *)
      local command
      command_of "$case" "$run"
      answer "$kind" "$what" "${command[@]}" || code=$?
      # Metrics are what they are: a damaged line is cut, and not made again.
      if [ $code = 0 ] && [ $finished = 0 ] && [[ $file == */checkpoints/* ]] && [ "$(final_bytes "$run")" != "$(cat "$case/bytes")" ]; then
        broke "$kind" "$what: it is trained on silently, to other bytes"
        return
      fi
      ;;
  esac
  if [ $code != 1 ]; then held "$kind"; fi
}

damage_data() {
  local case=$1 seed=$RANDOM kind="damaged data" file code=0 command from i
  command_of "$case" "$scratch/run"
  for ((i = 0; i < ${#command[@]}; ++i)); do
    if [ "${command[i]}" = --data-dir ]; then from=${command[i + 1]}; fi
  done
  case $from in "$work"/*) ;; *) return ;; esac  # others' data is not ours to copy
  cp -r "$from" "$scratch/data"
  local files=("$scratch"/data/*)
  file=${files[RANDOM % ${#files[@]}]}
  damage "$file" $seed
  for ((i = 0; i < ${#command[@]}; ++i)); do command[i]=${command[i]/#"$from"/"$scratch/data"}; done
  answer "$kind" "${file##*/} of $case, damaged with $seed" "${command[@]}" || code=$?
  if [ $code != 1 ]; then held "$kind"; fi
}
