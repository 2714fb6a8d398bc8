# Small runs of every task with both engines on made-up data, each with the checkpoint of its uninterrupted run.

cases=()
skipped=()

# Deterministic numbers for the data: awk's own generator differs between its versions.
numbers='function next_number(n) { state = (state * 16807) % 2147483647; return state % n } BEGIN { state = 12345 }'

make_images() {
  local source=/usr/share/datasets/fashion-mnist
  [ -e "$source/t10k-images-idx3-ubyte.gz" ] || return 1
  mkdir -p "$1"
  local set count=240
  for set in train t10k; do
    # Magic number, count, and what follows of the real file.
    { printf '\0\0\10\3\0\0\0\360'
      zcat "$source/t10k-images-idx3-ubyte.gz" 2>/dev/null | tail -c +9 | head -c $((8 + count * 784)); } >"$1/$set-images-idx3-ubyte"
    { printf '\0\0\10\1\0\0\0\360'
      zcat "$source/t10k-labels-idx1-ubyte.gz" 2>/dev/null | tail -c +9 | head -c $count; } >"$1/$set-labels-idx1-ubyte"
  done
}

make_text() {
  mkdir -p "$1"
  local set
  for set in train valid test; do
    awk "$numbers"'{ } END { for (line = 0; line < 60; ++line) {
      for (word = 0; word < 12; ++word) printf " w%d", next_number(40); print " " } }' /dev/null >"$1/ptb.$set.txt"
  done
}

make_papers() {
  mkdir -p "$1"
  awk "$numbers"'{ } END { for (paper = 0; paper < 120; ++paper) {
    printf "p%d", paper
    for (word = 0; word < 30; ++word) printf "\t%d", next_number(10) < (word % 3 == paper % 3 ? 4 : 1)
    printf "\tclass%d\n", paper % 3 } }' /dev/null >"$1/small.content"
  awk "$numbers"'{ } END { for (i = 0; i < 480; ++i) printf "p%d\tp%d\n", next_number(40) * 3 + i % 3, i / 4 }' \
    /dev/null >"$1/small.cites"
}

make_pairs() {
  mkdir -p "$1"
  local set
  for set in train trial test_annotated; do
    awk "$numbers"'{ } END { print "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
      split("NEUTRAL ENTAILMENT CONTRADICTION", label, " ")
      for (i = 1; i <= 64; ++i) printf "%d\ta w%d b\tc w%d\t3.0\t%s\n", i, next_number(20), next_number(20), label[i % 3 + 1]
    }' /dev/null >"$1/SICK_$set.txt"
  done
  { printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n'; for i in $(seq 0 19); do echo "w$i"; done; } >"$1/vocab.txt"
}

# add_case NAME ENGINE FLAGS…: trains it without interruption.
add_case() {
  local name=$1-$2 engine=$2
  local folder=$work/cases/$name
  shift 2
  mkdir -p "$folder"
  printf '%s\n' "$@" --engine "$engine" --checkpoint-every 2 --log-every 3 --eval-every 5 >"$folder/flags"
  local begin
  begin=$(date +%s%N)
  if ! train "$folder" "$folder/reference" >"$folder/log" 2>&1; then
    cat "$folder/log" >&2
    echo "campaign: the uninterrupted run of $name failed" >&2
    exit 1
  fi
  echo $((($(date +%s%N) - begin) / 1000000)) >"$folder/milliseconds"
  final_bytes "$folder/reference" >"$folder/bytes"
  cases+=("$folder")
}

# command_of CASE OUT [THREADS]: sets `command`.
command_of() {
  mapfile -t command <"$1/flags"
  command=("$LOWTIDE" train "${command[@]}" --out "$2" --resume --threads "${3:-2}")
}

train() {
  local command
  command_of "$@"
  "${command[@]}"
}

# What must be equal in the end: the last checkpoint's bytes, and the metrics without their times.
final_bytes() {
  local last
  last=$(ls "$1"/checkpoints/step-*.safetensors | tail -n 1)
  { basename "$last"; cat "$last"; sed -E 's/"(seconds|items_per_s)":[^,}]*//g' "$1/metrics.jsonl"; } | sha256sum
}

make_cases() {
  local data=$work/data engine
  make_text "$data/text"
  make_papers "$data/papers"
  make_pairs "$data/pairs"
  if ! make_images "$data/images"; then skipped+=("images: Debian's dataset-fashion-mnist is missing"); fi
  local voc=${LOWTIDE_DATA_DIR:-../shared/data}/VOCdevkit
  # Its network is a hundred times as large as the others': its checkpoints are copied for seconds.
  if [ "${minutes%.*}" -lt 5 ]; then
    skipped+=("detection: takes part in campaigns of five minutes or more")
    voc=
  elif [ ! -d "$voc" ]; then
    skipped+=("detection: no $voc (see LOWTIDE_DATA_DIR)")
  fi
  for engine in simulated integer; do
    if [ -d "$data/images" ]; then
      add_case images "$engine" --data idx --data-dir "$data/images" --validation 40 --model cifar-resnet8 --steps 10 \
        --batch 16 --cycles 2 --augment pad-crop --flip
    fi
    add_case language "$engine" --data ptb --data-dir "$data/text" --model lstm --hidden 16 --steps 12 --batch 4 \
      --length 8 --dropout 0.2 --lr 1 --cycles 2
    add_case transformer "$engine" --data ptb --data-dir "$data/text" --model transformer --hidden 16 --heads 2 \
      --steps 10 --batch 4 --length 8 --dropout 0.2 --optimizer adam --lr 0.001 --cycles 2
    add_case nodes "$engine" --data citation --data-dir "$data/papers" --node-split 0.5:0.2 --model gcn --layers 2 \
      --hidden 16 --steps 14 --optimizer adam --lr 0.01 --dropout 0.3 --cycles 2
    add_case entailment "$engine" --data sick --data-dir "$data/pairs" --vocabulary "$data/pairs/vocab.txt" --model bert \
      --hidden 16 --layers 1 --heads 2 --feed-forward 32 --length 16 --steps 10 --batch 8 --optimizer adamw --lr 0.001 \
      --cycles 2
    if [ -d "$voc" ]; then
      add_case detection "$engine" --data voc --data-dir "$voc" --train-set train:4 --test-set train:4 --resize 64 \
        --max-size 96 --model retinanet18 --steps 4 --batch 2 --lr 0.0001 --cycles 2 \
        --keep-checkpoints 1
    fi
  done
  echo "campaign: ${#cases[@]} cases"
}
