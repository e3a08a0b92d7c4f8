#!/bin/sh
# The same weights to the bit whatever the scheduler and the number of workers, with the number of
# replicas fixed: LeNet over all schedulers; ResNet with batch normalisation and augmentation, in
# f32 and bf16; LSTM and GRU with dropout and carried state; sentences in buckets. Every run is
# compared with the first; a run with another seed must differ, or the comparison would prove
# nothing.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
lenet=${LENET:-examples/lenet}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown=log
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_HOME="${STARPU_HOME:-$work}"

# train SCHEDULER WORKERS FILE PROGRAM OPTIONS...
train() {
  scheduler=$1 workers=$2 file=$3; shift 3
  STARPU_SCHED=$scheduler STARPU_NCPU=$workers timeout 120 "$@" --quiet --save "$work/$file" \
    >"$work/log" 2>&1
}
# alike NAME PLACES PROGRAM OPTIONS...: PLACES are SCHEDULER:WORKERS
alike() {
  name=$1 places=$2; shift 2
  rm -f "$work"/*.safetensors
  first=
  for place in $places; do
    file=${place%:*}-${place#*:}.safetensors
    if ! train "${place%:*}" "${place#*:}" "$file" "$@" --seed 3; then
      not_ok "$name, ${place%:*} with ${place#*:} workers: does not run"
      continue
    fi
    [ -n "$first" ] || { first=$file; continue; }
    check "$name, ${place%:*} with ${place#*:} workers: the same weights to the bit" \
      cmp -s "$work/$first" "$work/$file"
  done
  train lws 2 other.safetensors "$@" --seed 4
  if [ -s "$work/other.safetensors" ] && ! cmp -s "$work/$first" "$work/other.safetensors"; then
    ok "$name: another seed gives other weights"
  else
    not_ok "$name: another seed gives the same weights, or none"
  fi
}

all=
for scheduler in eager lws dmda dmdas prio; do
  all="$all $scheduler:1 $scheduler:2 $scheduler:4"
done
alike "LeNet" "$all" "$lenet" --data digits --steps 50 --batch 26 --replicas 3 --momentum 0.9
some="eager:1 lws:4 dmdas:2"
# a few of the generated pictures: the evaluation at the end would take most of the time
mkdir "$work/all" "$work/few"
train eager 1 none examples/resnet --depth 8 --steps 1 --batch 500 --write-data "$work/all"
for file in "$work"/all/*.bin; do
  head -c $((3073 * 20)) "$file" >"$work/few/${file##*/}"
done
set -- examples/resnet --data "$work/few" --depth 8 --steps 4 --batch 12 --replicas 3
alike "ResNet" "$some" "$@" --microbatches 2
alike "ResNet in bf16" "$some" "$@" --math bf16
set -- examples/lstm_lm --steps 8 --batch 6 --replicas 3 --hidden 24 --embed 24 --words 100
alike "LSTM with dropout" "$some" "$@" --dropout 0.3 --bptt 12 --chunk 4
alike "GRU in bf16" "$some" "$@" --cell gru --dropout 0.3 --bptt 12 --math bf16
alike "sentences in buckets" "$some" "$@" --dropout 0.2 --buckets auto:3

echo "1..$n"
exit $failed
