#!/bin/sh
# gpu_counts.sh [BUILD]: the tasks, the launches and the copies of a training step on one GPU,
# counted by the stand-in for one (configure --with-cuda=standin; BUILD is its folder, by default
# the current one): half the difference between a run of four steps and one of two. A launch is a
# kernel or a call of cuBLASLt or cuDNN, which may be several kernels. Takes minutes.
# COUNTS_OPTIONS are options of all trainings.
set -u
cd "${1:-.}" || exit 1
[ -e tests/standin/.libs/libcudart.so ] || {
  echo "$0: $PWD is no build with the stand-in (configure --with-cuda=standin)" >&2
  exit 1
}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$PWD/tests/standin/.libs" STARPU_HOME="$work" STARPU_SILENT=1
export STARPU_NCPU=1 STARPU_NCUDA=1 STARPU_PROFILING=1 STARPU_WORKER_STATS=1
unset STARPU_LIMIT_CUDA_MEM STARPU_PREFETCH STARPU_SUBALLOCATOR

noise() {
  LC_ALL=C awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 33 + rand() * 90 }'
}
labels() { LC_ALL=C awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 1 + i % 9 }'; }
# pictures SET COUNT: MNIST's files; COUNT is a multiple of 256
pictures() {
  count="\\000\\000\\$(printf %03o $(($2 / 256)))\\000"
  {
    printf %b "\\000\\000\\010\\003$count\\000\\000\\000\\034\\000\\000\\000\\034"
    noise $((784 * $2))
  } >"$work/mnist/$1-images-idx3-ubyte"
  { printf %b "\\000\\000\\010\\001$count"; labels "$2"; } >"$work/mnist/$1-labels-idx1-ubyte"
}
# colours FILE COUNT: CIFAR-10's; the label is the first byte of each record
colours() {
  for _ in $(seq "$2"); do printf '\001'; head -c 3072 "$work/noise"; done >"$work/cifar/$1.bin"
}
mkdir "$work/mnist" "$work/cifar"
pictures train 768
pictures t10k 256
noise 3072 >"$work/noise"
for i in 1 2 3 4 5; do colours "data_batch_$i" 128; done
colours test_batch 4

# counts STEPS TRAINER OPTIONS...: prints the tasks, kernels and copies of the whole run
counts() {
  steps=$1 trainer=$2; shift 2
  # shellcheck disable=SC2086
  SL_STANDIN_COUNT=$work/count "examples/$trainer" --quiet --devices cuda:0 --steps "$steps" \
    ${COUNTS_OPTIONS:-} "$@" >"$work/out" 2>&1 || { tail -n 3 "$work/out" >&2; return 1; }
  awk '/task\(s\)/ { tasks += $1 } END { printf "%d ", tasks }' "$work/out"
  awk '{ n[$1] = $2 } END { print n["kernels"], n["copies"] }' "$work/count"
}
# row NAME TRAINER OPTIONS...
row() {
  name=$1; shift
  two=$(counts 2 "$@") && four=$(counts 4 "$@") || exit 1
  echo "$two $four" | awk -v name="$name" \
    '{ printf "%-14s %7.1f %9.1f %7.1f\n", name, ($4 - $1) / 2, ($5 - $2) / 2, ($6 - $3) / 2 }'
}
# the first run with this STARPU_HOME measures the bus by copies
counts 1 mlp --data "$work/mnist" --batch 128 >/dev/null || exit 1
printf '%-14s %7s %9s %7s\n' 'a step' tasks launches copies
row 'MLP b128' mlp --data "$work/mnist" --batch 128
row 'LeNet b64' lenet --data "$work/mnist" --batch 64
row 'LSTM 2x200' lstm_lm --data grammar --layers 2 --hidden 200 --embed 200 --batch 20 --bptt 35
row 'ResNet-20 b128' resnet --data "$work/cifar" --depth 20 --batch 128
