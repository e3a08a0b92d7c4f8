#!/bin/sh
# A regression by the mlp trainer: it reaches the noise of the generated data, says errors instead
# of an accuracy in its lines and its log, goes on from a checkpoint to the bit, and
# starling-predict answers in the targets' unit. Options that do not fit the data get one clear
# line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
mlp=${MLP:-examples/mlp} predict=${PREDICT:-tools/starling-predict}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
train="--data friedman --hidden 64,64 --optimizer adamw --weight-decay 0.01 --lr 0.01 --batch 100"
train="$train --replicas 2"

# ---- what is refused ----
# refused CODE WORD ARGUMENTS...: one line on the error stream with WORD in it
refused() {
  code=$1 word=$2; shift 2
  timeout 60 "$mlp" "$@" >"$work/out" 2>"$work/err"; got=$?
  [ "$got" = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q -e "$word" "$work/err"
  verdict $? "$*: exit code $code, $word"
}
refused 2 "use cross-entropy" --loss square
refused 2 "takes no parameter" --loss mse:2
refused 2 "delta is a number above 0" --loss huber:0
refused 2 "use classification or regression" --task forecast
refused 2 "takes labels, but --task says regression" --loss cross-entropy --task regression
refused 2 "has class labels; use cross-entropy" --data digits --loss mse
refused 2 "has class labels" --data digits --task regression
refused 2 "has targets; use mse" --data friedman --loss cross-entropy
refused 2 "has targets" --data friedman --task classification

# ---- the noise, of deviation 1 ----
# shellcheck disable=SC2086 # $train is several words
timeout 200 "$mlp" $train --loss mse --task regression --epochs 10 --lr-schedule cosine \
  --log "$work/a.jsonl" --save "$work/a.json" >"$work/out" 2>"$work/err"
verdict $? "mlp trains a regression"
rmse=$(sed -n 's/.*"test_rmse": *\([0-9.]*\).*/\1/p' "$work/a.jsonl" | tail -n 1)
check "the root mean squared error, $rmse, is that of the noise" \
  awk "BEGIN {exit !(${rmse:-9} > 0.95 && ${rmse:-9} < 1.12)}"
check "the result's line has it" grep -q '^Test RMSE ' "$work/out"
check "each epoch's line has it" test "$(grep -c '^epoch .* test RMSE .* R2 ' "$work/out")" = 10
check "no line has an accuracy" sh -c "! grep -q accuracy '$work/out' '$work/a.jsonl'"
check "throughput counts a table's rows" grep -q '"unit": *"rows"' "$work/a.jsonl"
check "the log says which loss" grep -q '"loss": *"mse"' "$work/a.jsonl"

timeout 60 "${REPORT:-tools/starling-report}" -o "$work/report.html" "$work/a.jsonl" \
  2>"$work/err" &&
  grep -q 'test RMSE' "$work/report.html" && ! grep -qi 'test accuracy' "$work/report.html"
verdict $? "the report has the error, and no accuracy"
timeout 60 "${PLOT:-tools/starling-plot}" -o "$work/curve.svg" "$work/a.jsonl" 2>"$work/err"
verdict $? "starling-plot draws the log"

# ---- answers ----
timeout 100 "$predict" "$work/a.json" friedman >"$work/answers" 2>"$work/err"
verdict $? "starling-predict answers"
check "a line a sample" test "$(wc -l <"$work/answers")" = 2000
mean=$(sed -n 's/.*"values": *\[\([-0-9.e]*\)\].*/\1/p' "$work/answers" |
  awk '{s += $1} END {print s / NR}')
check "answers are in the targets' unit: their mean is $mean" \
  awk "BEGIN {exit !(${mean:-0} > 13.9 && ${mean:-0} < 14.9)}"

# ---- other losses, and a checkpoint ----
for loss in mae huber:0.5 cosine; do
  # shellcheck disable=SC2086
  timeout 100 "$mlp" $train --loss "$loss" --steps 20 --quiet --log "$work/$loss.jsonl" \
    2>"$work/err"
  verdict $? "--loss $loss trains"
done
# shellcheck disable=SC2086
timeout 100 "$mlp" $train --steps 60 --quiet --save "$work/whole.safetensors" 2>"$work/err" &&
  timeout 100 "$mlp" $train --steps 25 --quiet --checkpoint "$work/c" 2>"$work/err" &&
  timeout 100 "$mlp" $train --steps 60 --quiet --checkpoint "$work/c" --resume \
    --save "$work/halves.safetensors" 2>"$work/err" &&
  cmp -s "$work/whole.safetensors" "$work/halves.safetensors"
verdict $? "a resumed regression has the bits of an uninterrupted one"

echo "1..$n"
exit $failed
