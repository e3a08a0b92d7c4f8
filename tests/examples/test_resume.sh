#!/bin/sh
# Runs that were killed at bad moments, or ended by a signal, and resumed from their checkpoints end
# with the weights and the log of an undisturbed run. Then the files in the folder, and the messages
# about damaged files.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

files() { (cd "$1" 2>/dev/null && ls | grep '^checkpoint-'); }
names() { files "$1" | sed 's/checkpoint-0*//g; s/\.safetensors//g' | tr '\n' ' ' | sed 's/ $//'; }
newest() { files "$1" | grep -c 'safetensors$'; files "$1" | grep 'safetensors$' | tail -n 1; }
# a log's steps and evaluations without their rates, which no two runs share
losses() { grep 'loss": *[0-9]' "$1" | sed 's/, "samples_per_s".*//'; }
same_losses() { losses "$1" >"$work/a"; losses "$2" >"$work/b"; cmp -s "$work/a" "$work/b"; }

# until_killed FOLDER COMMAND...: kills the command as soon as it has written one more checkpoint;
# succeeds if the command was still running
until_killed() {
  folder=$1; shift
  before=$(newest "$folder")
  "$@" >"$work/out" 2>"$work/err" &
  pid=$!
  while kill -0 "$pid" 2>/dev/null && [ "$(newest "$folder")" = "$before" ]; do sleep 0.01; done
  kill -KILL "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  [ $? = 137 ]
}

# goes_on NAME TRAINER OPTIONS...: an undisturbed run, and one that is killed at its first and its
# second checkpoint
goes_on() {
  name=$1; shift
  if ! "$@" --quiet --save "$work/$name.whole" --log "$work/$name.whole.jsonl" \
    >"$work/out" 2>"$work/err"; then
    not_ok "$name: does not train"; return
  fi
  set -- "$@" --quiet --checkpoint "$work/$name.dir" --checkpoint-every 7 --resume \
    --save "$work/$name.cut" --log "$work/$name.jsonl"
  "$@" >"$work/out" 2>"$work/err" & pid=$!
  sleep 0.2 # before there is any checkpoint
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  kills=0
  for i in 1 2; do until_killed "$work/$name.dir" "$@" && kills=$((kills + 1)); done
  check "$name: killed $kills times" test "$kills" -gt 0
  check "$name: goes on" "$@" 2>"$work/err"
  check "$name: the same weights as undisturbed" cmp -s "$work/$name.whole" "$work/$name.cut"
  check "$name: the same log" same_losses "$work/$name.whole.jsonl" "$work/$name.jsonl"
}

common="--batch 200 --steps 20 --seed 3 --replicas 3"
goes_on lenet "$lenet" $common --momentum 0.9 --augment --lr-schedule cosine
goes_on mlp "$mlp" $common --batch 700 --optimizer adam --hidden 512,256
# one rank: its updates come in one order
goes_on dist_async "$mlp" $common --batch 700 --optimizer adam --hidden 256 --steps 60 \
  --replicas 1 --kvstore dist_async
yes 'the cat sat on the mat and it was flat' | head -n 4000 >"$work/text.txt"
goes_on lstm_lm "$lm" --data "$work/text.txt" --steps 150 --layers 1 --hidden 128 --embed 64 \
  --dropout 0.2 --replicas 2

# ---- SIGTERM, SIGINT ----
for signal in TERM INT; do
  set -- "$lenet" $common --momentum 0.9 --augment --lr-schedule cosine \
    --checkpoint "$work/$signal's dir" --log "$work/$signal.jsonl" \
    --save "$work/$signal.cut"
  for attempt in 1 2 3; do # again if the run ended before the signal
    rm -rf "$work/$signal's dir" "$work/$signal.jsonl"
    "$@" >"$work/out" 2>"$work/err" & pid=$!
    while kill -0 "$pid" 2>/dev/null &&
      [ "$(cat "$work/$signal.jsonl" 2>/dev/null | wc -l)" -lt 2 ]; do
      sleep 0.01
    done
    kill -"$signal" "$pid" "$pid" 2>/dev/null # twice, as timeout(1) does it
    wait "$pid" 2>/dev/null; got=$?
    grep -q "^Stopped by" "$work/out" && break
  done
  check "SIG$signal: exit code 0" test "$got" = 0
  check "SIG$signal: the last line says how to go on" sh -c \
    "tail -n 1 '$work/out' | grep '^Stopped by .*SIG$signal.* after step [1-9][0-9]* of 20; ' |
       grep -q '; go on with: .*lenet .* --resume\$'"
  way=$(tail -n 1 "$work/out" | sed 's/.*go on with: //')
  eval "$way" >"$work/out" 2>"$work/err"
  check "SIG$signal: pasted, it goes on" \
    grep -q "^Going on from .*/checkpoint-0.*, after step [1-9][0-9]* of 20" "$work/out"
  check "SIG$signal: the same weights as undisturbed" cmp -s "$work/lenet.whole" "$work/$signal.cut"
  check "SIG$signal: the same log" same_losses "$work/lenet.whole.jsonl" "$work/$signal.jsonl"
done

# ---- the folder ----
set -- "$lenet" --steps 20 --batch 100 --replicas 2 --checkpoint "$work/k" --checkpoint-every 3 \
  --save "$work/k.weights"
"$@" --keep 2 >"$work/out" 2>"$work/err"
check "--keep 2 keeps the last and the one before: $(names "$work/k")" \
  test "$(names "$work/k")" = "18 20"
cp "$work/k.weights" "$work/k.whole"
"$@" >"$work/out" 2>"$work/err"; got=$?
check "a folder in use is refused without --resume" \
  test "$got" = 2 -a "$(wc -l <"$work/err")" = 1 -a "$(names "$work/k")" = "18 20"
"$@" --resume >"$work/out" 2>"$work/err"; got=$?
check "a finished run has no steps to do" \
  test "$got" = 0 -a "$(grep -c "^Nothing is left" "$work/out")" = 1
check "and its weights again" cmp -s "$work/k.weights" "$work/k.whole"
echo half >"$work/k/checkpoint-000000021.safetensors.0a1b2c"
truncate -s -1 "$work/k/checkpoint-000000020.safetensors"
"$@" --resume --keep 1 >"$work/out" 2>"$work/err"; got=$?
check "a damaged checkpoint is reported in one line" test "$got" = 0 \
  -a "$(grep -c "passed over: .*000020" "$work/err")" = 1 -a "$(wc -l <"$work/err")" = 1
check "and the one before serves" grep -q "^Going on from .*checkpoint-000000018" "$work/out"
check "to the same weights" cmp -s "$work/k.weights" "$work/k.whole"
check "a half-written file is removed, and the file beyond --keep 1, too: $(names "$work/k")" \
  test "$(names "$work/k")" = 20
cp "$work/k/manifest.json" "$work/manifest"
"$mlp" --steps 30 --checkpoint "$work/k" --resume --quiet >"$work/out" 2>"$work/err"; got=$?
check "another model is refused: $(sed "s|$work/||g" "$work/err")" \
  test "$got" = 1 -a "$(wc -l <"$work/err")" = 1
check "and the manifest still lists its checkpoints" cmp -s "$work/manifest" "$work/k/manifest.json"
"$@" --resume --steps 30 --batch 50 >"$work/out" 2>"$work/err"; got=$?
check "another batch is refused: $(sed "s|$work/||g" "$work/err")" \
  test "$got" = 2 -a "$(wc -l <"$work/err")" = 1
truncate -s 100 "$work/k/checkpoint-000000020.safetensors"
"$@" --resume >"$work/out" 2>"$work/err"
check "no checkpoint is whole: from the beginning, with a message" \
  grep -q "^No whole checkpoint in .*: from the beginning" "$work/out"
check "to the same weights" cmp -s "$work/k.weights" "$work/k.whole"

# ---- the manifest: lengths and XXH64, beside the files' own CRC-32 ----
set -- "$lenet" --steps 12 --batch 100 --replicas 2 --checkpoint "$work/m" --checkpoint-every 3 \
  --save "$work/m.weights"
again() { rm -rf "$work/m"; cp -r "$work/m.kept" "$work/m"; }
last=$work/m/checkpoint-000000012.safetensors manifest=$work/m/manifest.json
# goes_on_from STEP LINES WHAT: from STEP, with LINES lines on the error stream, to the same weights
goes_on_from() {
  step=$1 lines=$2 what=$3
  "$lenet" --steps 12 --batch 100 --replicas 2 --checkpoint "$work/m" --checkpoint-every 3 \
    --save "$work/m.weights" --resume >"$work/out" 2>"$work/err"
  got=$?
  if [ $got = 0 ] && [ "$(wc -l <"$work/err")" = "$lines" ] &&
    grep -q "^Going on from .*checkpoint-0*$step\.safetensors" "$work/out" &&
    cmp -s "$work/m.weights" "$work/m.whole"; then
    ok "$what: $(sed "s|$work/||g" "$work/err" | head -n 1)"
  else
    not_ok "$what: code $got, $(grep "Going on" "$work/out")"
  fi
}
"$@" --quiet >"$work/out" 2>"$work/err"
cp -r "$work/m" "$work/m.kept"; cp "$work/m.weights" "$work/m.whole"
listed=$(sed -n 's/.*"file": "checkpoint-0*\([0-9]*\)\..*/\1/p' "$manifest" | tr '\n' ' ')
check "it lists the newest first" test "$listed" = "12 9 6 "
check "with their lengths" grep -q "\"bytes\": $(wc -c <"$last")," "$manifest"
if command -v xxh64sum >/dev/null; then
  check "and what xxh64sum says of them" \
    grep -q "\"xxh64\": \"$(xxh64sum "$last" | cut -d ' ' -f 1)\"" "$manifest"
else
  ok "and their XXH64 # SKIP no xxh64sum"
fi
cp "$work/m/checkpoint-000000009.safetensors" "$last"
goes_on_from 9 1 "a whole file of other contents is passed over"
again; printf x | dd of="$last" bs=1 seek=100000 conv=notrunc 2>/dev/null
goes_on_from 9 1 "a changed byte"
again; sed -i '0,/"xxh64": "/s/"xxh64": "./"xxh64": "x/' "$manifest" # of the newest
goes_on_from 9 1 "a file with another XXH64 than the manifest's, though whole by its own checksum"
again; rm "$last"
goes_on_from 9 1 "a file that is gone"
again; rm "$manifest"
goes_on_from 12 1 "no manifest"
one_more_step() {
  "$lenet" --steps 13 --batch 100 --replicas 2 --checkpoint "$work/m" --resume --quiet &&
    grep -q 000000013 "$manifest"
}
check "which is there again after the next checkpoint" one_more_step
again; rm "$manifest"; truncate -s 100000 "$last"
goes_on_from 9 2 "no manifest, and a file cut short: its own checksum finds it"
again; truncate -s 200 "$manifest"
goes_on_from 12 1 "a manifest cut short"
again; sed -i 's/"bytes": [0-9]*/"bytes": "many"/' "$manifest"
goes_on_from 12 1 "a manifest with something else in it"
again; cp "$last" "$work/m/checkpoint-000000015.safetensors" # killed before it wrote the manifest
goes_on_from 15 0 "a file that came after the manifest counts"

# ---- other devices, and other options: reported ----
again
"$@" --steps 14 --replicas 1 --stages 2 --lr 0.05 --log "$work/m.jsonl" --resume \
  >"$work/out" 2>"$work/err"
got=$?
check "a message names the changed options" test "$got" = 0 -a \
  "$(sed -n 's/^Going on .*changed: //p' "$work/out")" = \
  "steps 12 -> 14, lr 0.1 -> 0.05, replicas 2 -> 1, stages 1 -> 2"
check "and logged" \
  grep -q '"resumed": ".*000000012.safetensors", "changed": "steps 12 -> 14, lr' "$work/m.jsonl"
logged='{"step": 14, "checkpoint": ".*", "stopped_s": .*, "write_s": .*, "bytes": [1-9]'
check "checkpoints are logged, with their times" grep -q "$logged" "$work/m.jsonl"
plot=${PLOT:-tools/starling-plot}
check "which starling-plot passes over" "$plot" -o "$work/m.svg" "$work/m.jsonl"
"$lenet" --steps 40 --batch 50 --checkpoint "$work/t" --checkpoint-every 0.0001min --keep 99 \
  --quiet >"$work/out" 2>"$work/err"
check "by the clock: $(files "$work/t" | wc -l) checkpoints" test "$(files "$work/t" | wc -l)" -gt 3
"$lenet" --steps 1 --checkpoint "$work/no" --checkpoint-every 3h >"$work/out" 2>"$work/err"; got=$?
check "neither steps nor minutes: $(cat "$work/err")" test "$got" = 2 -a "$(wc -l <"$work/err")" = 1

# ---- no room, no folder: the run goes on, and whole files stay whole ----
# no_room WHAT LAST_STEP COMMAND...: the command reports each checkpoint that failed and ends with
# code 1
no_room() {
  what=$1 last=$2; shift 2
  "$@" >"$work/out" 2>"$work/err"; got=$?
  if [ $got = 1 ] &&
    grep -q "no checkpoint after step [0-9]*: .*; the training goes on" "$work/err" &&
    [ "$(grep -c "no checkpoint after step $last: " "$work/err")" = 1 ] &&
    [ "$(grep -vc "no checkpoint after" "$work/err")" = 0 ] &&
    grep -q "^Test accuracy" "$work/out"; then
    ok "$what: $(sed "s|$work/||g" "$work/err" | head -n 1)"
  else
    not_ok "$what: code $got"
  fi
}
again
limited() {
  sh -c 'ulimit -f 1000; exec "$@"' sh "$lenet" --batch 100 --replicas 2 --steps 20 \
    --checkpoint "$work/m" --checkpoint-every 3 --resume
}
no_room "files may not grow (RLIMIT_FSIZE)" 20 limited
check "nothing half-written is left" \
  test "$(ls -a "$work/m" | tr '\n' ' ')" = "$(ls -a "$work/m.kept" | tr '\n' ' ')"
goes_on_from 12 0 "the checkpoints before are whole"
again
mkdir "$work/gone"; cp "$work/m.kept"/* "$work/gone/"
vanishing() {
  "$lenet" --batch 100 --replicas 2 --steps 200 --checkpoint "$work/gone" --checkpoint-every 1 \
    --resume & pid=$!
  while kill -0 $pid 2>/dev/null && [ ! -e "$work/gone/checkpoint-000000013.safetensors" ]; do
    sleep 0.01
  done
  mv "$work/gone" "$work/elsewhere"
  wait $pid
}
no_room "the folder vanishes" 200 vanishing
mkdir -p "$work/disk"
if mount -t tmpfs -o size=6m tmpfs "$work/disk" 2>/dev/null; then
  cp -r "$work/m.kept" "$work/disk/m" # three of 1.7 MB
  no_room "the disk is full" 20 "$lenet" --batch 100 --replicas 2 --steps 20 \
    --checkpoint "$work/disk/m" --checkpoint-every 3 --resume
  check "the one before is whole" cmp -s "$work/disk/m/checkpoint-000000012.safetensors" \
    "$work/m.kept/checkpoint-000000012.safetensors"
  umount "$work/disk"
else
  ok "the disk is full # SKIP no tmpfs may be mounted here"
fi
for place in /proc/here /sys/here; do
  "$lenet" --steps 1 --checkpoint $place --quiet >"$work/out" 2>"$work/err"; got=$?
  check "a file system that takes no folder: $(cat "$work/err")" \
    test "$got" = 1 -a "$(wc -l <"$work/err")" = 1
done

"$lenet" --epochs 2 --batch 1000 --checkpoint "$work/e" --quiet >"$work/out" 2>"$work/err"
check "one an epoch by default: $(names "$work/e")" test "$(names "$work/e")" = "10 20"
"$lenet" --steps 1 --checkpoint "$work/no/folder" --quiet >"$work/out" 2>"$work/err"; got=$?
check "a folder that cannot be made: $(sed "s|$work/||g" "$work/err")" \
  test "$got" = 1 -a "$(wc -l <"$work/err")" = 1
for option in "--checkpoint-every 5" "--keep 2" --resume; do
  "$lenet" --steps 1 $option >"$work/out" 2>"$work/err"; got=$?
  check "$option alone is refused" \
    test "$got" = 2 -a "$(grep -c "belong to --checkpoint" "$work/err")" = 1
done

echo "1..$n"
exit $failed
