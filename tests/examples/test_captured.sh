#!/bin/sh
# Each trainer's captured steps have the bits of its eager ones (--eager: a task for each call), by
# its defaults and in modes of its own. A run with another seed must differ, or the comparison would
# prove nothing. The library's modes are in tests/parallel/test_captured_step.c.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown=log
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"

# train FILE PROGRAM OPTIONS...
train() {
  file=$1; shift
  rm -f "$work/$file"
  timeout 120 "$@" --quiet --save "$work/$file" >"$work/log" 2>&1 &&
    ! grep -q 'steps are not captured' "$work/log"
}
# alike NAME PROGRAM OPTIONS...
alike() {
  name=$1; shift
  if ! train captured.safetensors "$@" --seed 3; then
    not_ok "$name: a captured run"
  elif ! train eager.safetensors "$@" --seed 3 --eager; then
    not_ok "$name: an eager run"
  elif ! train other.safetensors "$@" --seed 4; then
    not_ok "$name: a run with another seed"
  elif cmp -s "$work/captured.safetensors" "$work/other.safetensors"; then
    not_ok "$name: another seed gives the same weights"
  else
    check "$name: captured and eager, the same weights to the bit" \
      cmp -s "$work/captured.safetensors" "$work/eager.safetensors"
  fi
}

set -- examples/lenet --data digits --steps 12
alike "LeNet" "$@"
alike "LeNet, AdamW, clipped, three replicas" "$@" --batch 39 --optimizer adamw --clip 1 --replicas 3
alike "LeNet in two stages" "$@" --stages 2 --microbatches 2
set -- examples/mlp --data digits --steps 20
alike "MLP" "$@"
alike "MLP in bf16, microbatches" "$@" --math bf16 --microbatches 2
# a few of the generated pictures: the evaluation at the end would take most of the time
mkdir "$work/all" "$work/few"
examples/resnet --depth 8 --steps 1 --batch 500 --quiet --write-data "$work/all" >"$work/log" 2>&1
for file in "$work"/all/*.bin; do
  head -c $((3073 * 20)) "$file" >"$work/few/${file##*/}"
done
set -- examples/resnet --data "$work/few" --depth 8 --steps 4 --batch 12
alike "ResNet" "$@"
alike "ResNet in bf16, microbatches" "$@" --math bf16 --microbatches 2
set -- examples/lstm_lm --steps 8 --batch 8 --hidden 24 --embed 24 --words 100
alike "LSTM" "$@"
alike "LSTM with dropout in chunks, clipped" "$@" --dropout 0.3 --bptt 12 --chunk 4 --clip 0.5
alike "GRU" "$@" --cell gru --dropout 0.3 --bptt 12
alike "sentences in buckets" "$@" --dropout 0.2 --buckets auto:3

echo "1..$n"
exit $failed
