#!/bin/sh
# Early stopping and the best weights over ranks: all end after the same step, and in common steps
# the run is that of one process with such a batch.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
mlp=${MLP:-examples/mlp}
train="$mlp --hidden 16 --lr 3 --epochs 12 --patience 2 --metric accuracy"
epochs() { grep -c '"test_loss"' "$1"; }
ended() { [ "$(code_of 0)" = 0 ] && [ "$(code_of 1)" = 0 ]; }
same_end() {
  [ "$(grep -c '"loss": [0-9]' "$work/$1.jsonl")" = "$(grep -c '"loss": [0-9]' \
    "$work/$1.rank1.jsonl")" ]
}

start 2 $train --batch 125 --kvstore dist_sync --best "$work/best" --checkpoint "$work/dir" \
  --log "$work/sync.jsonl"
until_true 100 have_ended 0 1
check "dist_sync: ended early, after $(epochs "$work/sync.jsonl") epochs" ended
check "before the last epoch" test "$(epochs "$work/sync.jsonl")" -lt 12
check "rank 0 says so" grep -q "^Ended early    no better accuracy in 2" "$run/out.0"
check "rank 1 after the same step" same_end sync
check "with its evaluations" test "$(epochs "$work/sync.jsonl")" = "$(epochs "$work/sync.rank1.jsonl")"
check "the best weights are there" test -s "$work/best"
start 2 $train --batch 125 --kvstore dist_sync --checkpoint "$work/dir" --resume --quiet \
  --log "$work/again.jsonl"
until_true 100 have_ended 0 1
check "resumed: nothing is left to do on either" ended
check "not one step" sh -c '! grep -q "\"loss\": [0-9]" "$1"' sh "$work/again.jsonl"

# asked for in the midst of an epoch, by a signal to rank 1, and resumed
start 2 $train --batch 125 --kvstore dist_sync --best "$work/cut.best" --checkpoint "$work/cut" \
  --checkpoint-every 3 --log "$work/cut.jsonl"
until_true 60 test -e "$work/cut/manifest.json"
kill -TERM "$(cat "$run/pid.1")" 2>/dev/null
until_true 100 have_ended 0 1
start 2 $train --batch 125 --kvstore dist_sync --best "$work/cut.best" --checkpoint "$work/cut" \
  --resume --log "$work/cut.jsonl"
until_true 100 have_ended 0 1
check "a signal to rank 1, resumed: the same number of epochs" \
  test "$(epochs "$work/cut.jsonl")" = "$(epochs "$work/sync.jsonl")"
check "the same best weights" cmp -s "$work/best" "$work/cut.best"

# out of step rank 0 evaluates alone; the others learn it
start 2 $train --batch 125 --kvstore dist_async --patience 1 --log "$work/async.jsonl" \
  --best "$work/async"
until_true 100 have_ended 0 1
check "dist_async: both end, after $(epochs "$work/async.jsonl") evaluations" ended
if [ "$(epochs "$work/async.jsonl")" -lt 12 ]; then
  check "rank 0 says why" grep -q "^Ended early    no better accuracy in 1" "$run/out.0"
  check "rank 1's log does not call it interrupted" \
    grep -q '"end": "done"' "$work/async.rank1.jsonl"
else
  skip "dist_async ends early" "it got better all the time"
fi

# with checkpoints and a server, whose halts are others than that of a rank that stops
all_ended() { ended && [ "$(code_of 2)" = 0 ]; }
start 3 $train --batch 125 --kvstore dist_async --servers 1 --patience 1 --timeout 20 \
  --checkpoint "$work/apart" --checkpoint-every 7 --log "$work/apart.jsonl"
until_true 100 have_ended 0 1 2
check "dist_async with a server and checkpoints: all end" all_ended
check "the log's end is no failure" sh -c '! grep -q "\"end\": \"failed\"" "$1"' sh \
  "$work/apart.jsonl"
start 3 $mlp --hidden 16 --epochs 100 --batch 125 --kvstore dist_async --servers 1 --timeout 20 \
  --checkpoint "$work/stop" --checkpoint-every 70 --log "$work/stop.jsonl"
until_true 60 test -e "$work/stop/manifest.json"
steps=$(grep -c '"loss": [0-9]' "$work/stop.jsonl")
kill -TERM "$(cat "$run/pid.2")" 2>/dev/null
until_true 100 have_ended 0 1 2
check "a signal to the server: all end, after more than $steps steps" all_ended
newest() { sed -n 's/.*checkpoint-0*\([0-9]*\)\..*/\1/p' "$1/manifest.json" | sort -n | tail -n 1; }
check "with a checkpoint of the last step" \
  [ "$(newest "$work/stop")" -ge "$(grep -c '"loss": [0-9]' "$work/stop.jsonl")" ]

start 2 $mlp --batch 125 --kvstore dist_sync --metric auc --steps 3
until_true 100 have_ended 0 1
check "a metric that ten classes do not have: one message" sh -c \
  'cat "$1"/err.* | grep -c "^mlp: metric auc" | grep -qx 1' sh "$run"

# options of rank 0 alone, or of rank 1 alone: all would wait for each other, or ignore them
# refused OPTIONS OTHERS MESSAGE
refused() {
  mpirun_for 60 -np 1 $mlp $images --kvstore dist_sync --steps 6 --timeout 20 $1 : \
    -np 1 $mlp $images --kvstore dist_sync --steps 6 --timeout 20 $2 >"$work/out" 2>"$work/err"
  got=$?
  check "'$1', rank 1 '$2': $(grep '^mlp: ' "$work/err" | head -n 1)" \
    test "$got $(grep -c "^mlp: the ranks were not started alike: $3" "$work/err")" = "2 1"
}
refused "--checkpoint $work/r --checkpoint-every 2" "--checkpoint $work/r --checkpoint-every 3" \
  'rank 0 has "checkpoint_every 2", rank 1 has "checkpoint_every 3"'
refused "" "--checkpoint $work/r --resume" 'rank 0 has "checkpoint (not given)"'
refused "--average 0.9 --best $work/r.st" "--average 0.9" 'rank 0 has "best given"'
refused "" "--save $work/r.st" 'rank 0 has "save (not given)"'

# where runs begin and end, in the library's own terms
program=${FIT_RANKS:-tests/parallel/fit_ranks}
[ -x "$program" ] || skip "where runs begin and end" "no $program: was it built (make check)?"
if [ -x "$program" ]; then
  mkdir "$work/places"
  mpirun_for 100 -np 2 "$program" "$work/places" >"$work/out" 2>"$work/err"; got=$?
  while read -r line; do
    case $line in
      "ok - "*) ok "${line#ok - }" ;;
      "not ok - "*) not_ok "${line#not ok - }" ;;
    esac
  done <"$work/out"
  check "all 11 cases (exit code $got): $(head -n 1 "$work/err")" \
    test "$got $(grep -c '^ok - ' "$work/out")" = "0 11"
fi
echo "1..$n"
exit $failed
