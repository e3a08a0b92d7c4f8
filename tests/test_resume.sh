#!/bin/sh
# Runs that were killed at bad moments, or ended by a signal, and go on from their checkpoints: they end with the weights
# and the log of a run that nobody disturbed. Then what is in the folder, and what is told of damaged files.
set -u
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} lm=${LSTM_LM:-examples/lstm_lm}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_HOME="${STARPU_HOME:-$work}" STARPU_NCPU=2 STARPU_NCUDA=0
n=0 failed=0

ok() { n=$((n + 1)); echo "ok $n - $*"; }
not_ok() { n=$((n + 1)); failed=1; echo "not ok $n - $*"; sed "s|$work/||g; s/^/# /" "$work/err" | head -n 5; }
check() { what=$1; shift; if "$@"; then ok "$what"; else not_ok "$what"; fi; }

names() { (cd "$1" && echo *) | sed 's/checkpoint-0*//g; s/\.safetensors//g'; }
newest() { ls "$1" 2>/dev/null | grep -c . ; ls "$1" 2>/dev/null | tail -n 1; }
# a log's steps and evaluations without their rates, which no two runs share
losses() { grep 'loss"' "$1" | sed 's/, "samples_per_s".*//'; }
same_losses() { losses "$1" >"$work/a"; losses "$2" >"$work/b"; cmp -s "$work/a" "$work/b"; }

# until_killed FOLDER COMMAND...: killed as soon as it has written one more checkpoint; says whether it was in time
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

# goes_on NAME TRAINER OPTIONS...: an undisturbed run, and one that is killed at its first and second checkpoint
goes_on() {
  name=$1; shift
  if ! "$@" --quiet --save "$work/$name.whole" --log "$work/$name.whole.jsonl" >"$work/out" 2>"$work/err"; then
    not_ok "$name: does not train"; return
  fi
  set -- "$@" --quiet --checkpoint "$work/$name.dir" --checkpoint-every 7 --resume --save "$work/$name.cut" --log "$work/$name.jsonl"
  "$@" >"$work/out" 2>"$work/err" & pid=$! # before there is any
  sleep 0.2; kill -KILL "$pid"; wait "$pid" 2>/dev/null
  kills=0
  for i in 1 2; do until_killed "$work/$name.dir" "$@" && kills=$((kills + 1)); done
  check "$name: killed $kills times" test "$kills" -gt 0
  check "$name: goes on" "$@" 2>"$work/err"
  check "$name: the same weights as undisturbed" cmp -s "$work/$name.whole" "$work/$name.cut"
  check "$name: the same log" same_losses "$work/$name.whole.jsonl" "$work/$name.jsonl"
}

common="--batch 500 --steps 20 --seed 3 --replicas 3"
goes_on lenet "$lenet" $common --momentum 0.9 --augment --lr-schedule cosine
goes_on mlp "$mlp" $common --batch 700 --optimizer adam --hidden 512,256
# one rank: its updates come in one order
goes_on dist_async "$mlp" $common --batch 700 --optimizer adam --hidden 256 --steps 60 --replicas 1 --kvstore dist_async
yes 'the cat sat on the mat and it was flat' | head -n 4000 >"$work/text.txt"
goes_on lstm_lm "$lm" --data "$work/text.txt" --steps 150 --layers 1 --hidden 128 --embed 64 --dropout 0.2 --replicas 2

# ---- SIGTERM, SIGINT ----
for signal in TERM INT; do
  set -- "$lenet" $common --momentum 0.9 --augment --lr-schedule cosine --checkpoint "$work/$signal.dir" --log "$work/$signal.jsonl" \
    --save "$work/$signal.cut"
  for attempt in 1 2 3; do # on a machine so fast that it has ended, once more
    rm -rf "$work/$signal.dir" "$work/$signal.jsonl"
    "$@" >"$work/out" 2>"$work/err" & pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(cat "$work/$signal.jsonl" 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.01; done
    kill -"$signal" "$pid" "$pid" 2>/dev/null # twice, as timeout(1) does it
    wait "$pid" 2>/dev/null; got=$?
    [ "$got" -gt 128 ] && break
  done
  if [ "$got" -gt 128 ] && [ "$got" != 137 ] && tail -n 1 "$work/out" | grep -q -e '--resume, from .*/checkpoint-0'; then
    ok "SIG$signal: the last line says how to go on"
  else not_ok "SIG$signal: exit code $got, last line $(tail -n 1 "$work/out")"; fi
  "$@" --resume >"$work/out" 2>"$work/err"
  check "SIG$signal: told where it goes on" grep -q "^Going on from .*/checkpoint-0.*, after step [1-9][0-9]* of 20" "$work/out"
  check "SIG$signal: the same weights as undisturbed" cmp -s "$work/lenet.whole" "$work/$signal.cut"
  check "SIG$signal: the same log" same_losses "$work/lenet.whole.jsonl" "$work/$signal.jsonl"
done

# ---- the folder ----
set -- "$lenet" --steps 20 --batch 100 --replicas 2 --checkpoint "$work/k" --checkpoint-every 3 --save "$work/k.weights"
"$@" --keep 2 >"$work/out" 2>"$work/err"
check "--keep 2 keeps the last and the one before: $(names "$work/k")" test "$(names "$work/k")" = "18 20"
cp "$work/k.weights" "$work/k.whole"
"$@" >"$work/out" 2>"$work/err"; got=$?
check "a folder in use is not begun anew" test "$got" = 2 -a "$(wc -l <"$work/err")" = 1 -a "$(names "$work/k")" = "18 20"
"$@" --resume >"$work/out" 2>"$work/err"; got=$?
check "a finished run has nothing left" test "$got" = 0 -a "$(grep -c "^Nothing is left" "$work/out")" = 1
check "and its weights again" cmp -s "$work/k.weights" "$work/k.whole"
echo half >"$work/k/checkpoint-000000021.safetensors.0a1b2c"
truncate -s -1 "$work/k/checkpoint-000000020.safetensors"
"$@" --resume --keep 1 >"$work/out" 2>"$work/err"; got=$?
check "a damaged one is told of in one line" test "$got" = 0 -a "$(grep -c "passed over: .*000020" "$work/err")" = 1 -a "$(wc -l <"$work/err")" = 1
check "and the one before serves" grep -q "^Going on from .*checkpoint-000000018" "$work/out"
check "to the same weights" cmp -s "$work/k.weights" "$work/k.whole"
check "what a killed run left half-written is gone, and what --keep 1 leaves out: $(names "$work/k")" test "$(names "$work/k")" = 20
"$mlp" --steps 30 --checkpoint "$work/k" --resume --quiet >"$work/out" 2>"$work/err"; got=$?
check "another model is refused, not begun anew: $(sed "s|$work/||g" "$work/err")" test "$got" = 1 -a "$(wc -l <"$work/err")" = 1
"$@" --resume --steps 30 --batch 50 >"$work/out" 2>"$work/err"; got=$?
check "another batch is refused: $(sed "s|$work/||g" "$work/err")" test "$got" = 2 -a "$(wc -l <"$work/err")" = 1
truncate -s 100 "$work/k/checkpoint-000000020.safetensors"
"$@" --resume >"$work/out" 2>"$work/err"
check "none is whole: from the beginning, and said" grep -q "^No whole checkpoint in .*: from the beginning" "$work/out"
check "to the same weights" cmp -s "$work/k.weights" "$work/k.whole"
"$lenet" --epochs 2 --batch 1000 --checkpoint "$work/e" --quiet >"$work/out" 2>"$work/err"
check "one an epoch by default: $(names "$work/e")" test "$(names "$work/e")" = "10 20"
"$lenet" --steps 1 --checkpoint "$work/no/folder" --quiet >"$work/out" 2>"$work/err"; got=$?
check "a folder that cannot be made: $(sed "s|$work/||g" "$work/err")" test "$got" = 1 -a "$(wc -l <"$work/err")" = 1
for option in "--checkpoint-every 5" "--keep 2" --resume; do
  "$lenet" --steps 1 $option >"$work/out" 2>"$work/err"; got=$?
  check "$option alone is refused" test "$got" = 2 -a "$(grep -c "belong to --checkpoint" "$work/err")" = 1
done

echo "1..$n"
exit $failed
