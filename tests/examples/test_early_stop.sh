#!/bin/sh
# --patience, --metric, --best: a run ends after the evaluation that its own log asks for, an
# interrupted one after the same; the file of the best weights gives the best evaluation's answers.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
mlp=${MLP:-examples/mlp} predict=${PREDICT:-tools/starling-predict}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# a rate at which the network gets better and worse
train="$mlp --hidden 16 --batch 250 --lr 3 --replicas 2 --epochs 12"
# "EPOCHS BEST" by the log's evaluations: expected KEY SIGN PATIENCE LOG
expected() {
  awk -v key="\"$1\": " -v sign="$2" -v patience="$3" '
    /"test_loss"/ {
      value = substr($0, index($0, key) + length(key)) * sign
      epoch++
      if (epoch == 1 || value < best) { best = value; of = epoch; since = 0 } else since++
      if (since == patience) { print epoch, of; ended = 1; exit }
    }
    END { if (!ended) print epoch, of }' "$4"
}
# what the run did: "EPOCHS BEST"
did() {
  echo "$(grep -c '"test_loss"' "$1")" \
    "$(sed -n 's/^Best weights .* of epoch \([0-9]*\)$/\1/p' "$2")"
}
losses() { grep 'loss": *[0-9]' "$1" | sed 's/, "samples_per_s".*//'; }

$train --patience 2 --metric accuracy --best "$work/best.json" --save "$work/whole" \
  --log "$work/whole.jsonl" >"$work/out" 2>"$work/err"
verdict $? "a run with --patience 2"
check "it ends where its log says: $(did "$work/whole.jsonl" "$work/out")" \
  test "$(did "$work/whole.jsonl" "$work/out")" = "$(expected test_accuracy -1 2 "$work/whole.jsonl")"
check "before its last epoch" test "$(grep -c '"test_loss"' "$work/whole.jsonl")" -lt 12
check "its last lines have what decided" \
  grep -q "^Best weights   $work/best.json: test accuracy [0-9.]* %, of epoch [0-9]*\$" "$work/out"
check "and says so" grep -q "^Ended early    no better accuracy in 2 evaluations; the best was" \
  "$work/out"
check "so does its log" grep -q '"end": "done".*"message": "no better accuracy in 2' \
  "$work/whole.jsonl"
# y = x: its loss falls far below 1
awk 'BEGIN { print "x,y"; for (i = 0; i < 200; i++) print i "," i }' >"$work/line.csv"
name="-a 'log'.jsonl"
mlp_path=$(realpath "$mlp") plot=$(realpath "${PLOT:-tools/starling-plot}")
(cd "$work" && "$mlp_path" --data line.csv --target y --hidden 64 --optimizer adam --lr 0.01 \
  --lr-schedule cosine --batch 20 --epochs 60 --replicas 2 --log "$name" >line 2>err)
verdict $? "a run with a small loss"
check "a small loss has digits" \
  sh -c "! grep -q 'loss 0\.0000' '$work/line' && grep -q 'train loss [0-9.]*e-05' '$work/line'"
sed -n 's/^Curve *starling-plot/"$plot"/p' "$work/line" >"$work/pasted"
check "the line for its curve may be pasted into a shell" \
  sh -c "cd '$work' && plot='$plot' && . ./pasted && test -s curve.svg"
best=$(did "$work/whole.jsonl" "$work/out" | cut -d ' ' -f 2)
"$predict" --top 0 "$work/best.json" digits >"$work/answers" 2>"$work/err"
right=$(awk -F '[:,]' '{ for (i = 1; i < NF; i++) { if ($i ~ /"class"/) c = $(i + 1)
    if ($i ~ /"label"/) l = $(i + 1) + 0 } if (c + 0 == l) n++ } END { print n }' "$work/answers")
share=$(sed -n 's/.*"test_accuracy": \([0-9.]*\).*/\1/p' "$work/whole.jsonl" | sed -n "${best}p")
check "the best weights give $right right answers, the accuracy of epoch $best" \
  awk "BEGIN { exit !($right / 2000 == $share) }"

$train --patience 1 --log "$work/loss.jsonl" --best "$work/loss.safetensors" >"$work/out" 2>"$work/err"
check "by the loss, --patience 1: $(did "$work/loss.jsonl" "$work/out")" \
  test "$(did "$work/loss.jsonl" "$work/out")" = "$(expected test_loss 1 1 "$work/loss.jsonl")"

check "its last lines have the loss, which decided" grep -q '^Test loss      [0-9.]*$' "$work/out"

# a metric that the line of an epoch has not got otherwise
$mlp --hidden 16 --batch 250 --epochs 2 --metric top5 >"$work/out" 2>"$work/err"
check "--metric top5: on each epoch's line" \
  test "$(grep -c '^epoch .* test accuracy .* %  top-5 accuracy [0-9.]* %$' "$work/out")" = 2
check "and below them" grep -q '^Test top-5 accuracy [0-9.]* %$' "$work/out"
$mlp --data friedman --hidden 16 --batch 250 --epochs 1 --metric mae >"$work/out" 2>"$work/err"
check "--metric mae: on the epoch's line" \
  grep -q '^epoch .* test RMSE .*  R2 .*  MAE [0-9.]*$' "$work/out"
check "and below it" grep -q '^Test MAE       [0-9.]*$' "$work/out"

# ---- stopped by a signal, resumed ----
set -- $train --patience 2 --metric accuracy --checkpoint "$work/dir" --checkpoint-every 7 --resume \
  --best "$work/cut.best.json" --save "$work/cut" --log "$work/cut.jsonl"
stops=0
for _ in 1 2 3 4 5 6 7 8; do
  "$@" >"$work/out" 2>"$work/err" &
  pid=$!
  sleep 0.4
  kill -TERM "$pid" 2>/dev/null
  wait "$pid"
  grep -q "^Stopped by SIGTERM" "$work/out" && stops=$((stops + 1))
  grep -q "^Ended early\|^Nothing is left" "$work/out" && break
done
"$@" >"$work/out" 2>"$work/err"
verdict $? "resumed after $stops signals"
check "the same weights" cmp -s "$work/whole" "$work/cut"
check "the same best weights" cmp -s "$work/best.safetensors" "$work/cut.best.safetensors"
losses "$work/whole.jsonl" >"$work/a"
losses "$work/cut.jsonl" >"$work/b"
check "the same log" cmp -s "$work/a" "$work/b"
"$@" >"$work/out" 2>"$work/err"
check "once more: nothing is left" grep -q "^Nothing is left to train" "$work/out"

# ---- what is refused ----
# refused MESSAGE OPTIONS...
refused() {
  message=$1; shift
  "$mlp" --steps 1 "$@" >"$work/out" 2>"$work/err"
  code=$?
  check "refused: $*" sh -c '[ "$1" = 2 ] && [ "$(wc -l <"$2")" = 1 ] && grep -q -- "$3" "$2"' \
    sh "$code" "$work/err" "$message"
}
refused "--patience" --patience 0
refused "^mlp: --metric acc: unknown" --metric acc
refused "^mlp: metric rmse: an evaluation with this loss" --metric rmse
refused "other programs take .pt" --best "$work/x.pt"
refused "^mlp: --best $work/x: save writes this file, too" --save "$work/x" --best "$work/x"

# ---- a metric that is no number ----
awk 'BEGIN { print "a,y"; for (i = 0; i < 40; i++) print i ",5" }' >"$work/equal.csv"
awk 'BEGIN { print "a,y"; for (i = 0; i < 40; i++) print i ",1" }' >"$work/ones.csv"
small="--batch 10 --epochs 3 --hidden 4"
# shellcheck disable=SC2086 # $small is several words
{
  equal="$small --data $work/equal.csv --target y --metric r2"
  why="^mlp: metric r2: is no number on $work/equal.csv, validation set: all its targets are equal"
  refused "$why" $equal --best "$work/none.json"
  refused "$why" $equal --patience 2
  check "no file is there" test ! -e "$work/none.json"
  refused "metric auc: .*: all its samples are positive, or all negative; take accuracy" \
    $small --data "$work/ones.csv" --target y --loss bce --metric auc --patience 1
  "$mlp" $equal --quiet >"$work/out" 2>"$work/err"
  verdict $? "where nothing depends on it, the run goes on"
  check "with a warning, once" test "$(grep -c "$why" "$work/err"):$(wc -l <"$work/err")" = 1:1
}
echo "1..$n"
exit $failed
