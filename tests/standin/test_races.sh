#!/bin/sh
# No kernel has a race: two accesses of a byte that no barrier orders, or accesses of two blocks.
# All operations with a CUDA half on small shapes, and two steps of trainers, with the kernels
# compiled for the race checker (race.cu here), which is itself tested first. In builds with the
# stand-in alone.
set -u
not_seen="races of kernels"
. "${SL_SRCDIR:-.}/tests/common/standin.sh"
shown="err races"
programs=tests/standin/races

"$programs/selftest" >"$work/err" 2>&1
verdict $? "the race checker finds each planted race alone: $(grep -c '^ok' "$work/err") runs"

# silent COMMAND...: it succeeds, no race is reported, and accesses of kernels were looked at
silent() {
  SL_STANDIN_COUNT=$work/count "$@" >"$work/err" 2>&1
  status=$?
  grep 'race on' "$work/err" >"$work/races"
  checked=$(sed -n 's/^checked accesses //p' "$work/count" 2>/dev/null)
  rm -f "$work/count"
  [ $status = 0 ] && [ ! -s "$work/races" ] && [ "${checked:-0}" -gt 10000 ]
}
silent "$programs/gpu_ops" --device cuda:0 --small --once --seed 1
verdict $? "no race in $(grep -c '^ok' "$work/err") operations and types: ${checked:-no} accesses"

pixels() { head -c "$1" /dev/zero | tr "\\0" "x"; }
labels() { head -c "$1" /dev/zero | tr "\\0" "\\3"; }
pictures train 64 pixels labels
pictures t10k 2 pixels labels
# steps NAME TRAINER OPTIONS...: the kernels as trainers call them, on parts of larger tensors
steps() {
  name=$1 trainer=$2; shift 2
  silent "$programs/$trainer" --quiet --steps 2 --devices cuda:0 --data "$data" "$@"
  verdict $? "no race in two steps of $name: ${checked:-no} accesses"
}
data=$work/data
steps lenet lenet --batch 16 --replicas 2
steps "lenet in bf16" lenet --batch 16 --math bf16 --optimizer adam
steps resnet resnet --depth 8 --batch 4 --no-augment
data=${SL_SRCDIR:-.}/tests/gpu/gpu-check.sh # some text
language="--batch 4 --hidden 24 --embed 24 --bptt 6 --dropout 0.2"
steps "an LSTM" lstm_lm $language --clip 1
steps "a tied GRU in bf16" lstm_lm $language --cell gru --tied --math bf16
echo "1..$n"
exit $failed
