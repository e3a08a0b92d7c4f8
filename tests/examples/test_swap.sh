#!/bin/sh
# Trainings that have less memory than they need, down to an eighth of it: StarPU moves tensors to
# the swap folder and back, nothing hangs, and the weights are the same to the bit. Then impossible
# limits, each with one clear line; stalls and tasks that take long. test_swap_gpu.sh tests a GPU
# with main memory and the folder.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
trainers=${TRAINERS:-examples} failing=tests/examples/failing_lenet
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_NCPU=2 STARPU_NCUDA=0 OPENBLAS_NUM_THREADS=1
# a stalled run ends without freeing memory that StarPU may still read
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
unset STARPU_LIMIT_CPU_MEM STARPU_LIMIT_CUDA_MEM STARPU_PREFETCH STARPU_SUBALLOCATOR \
  STARPU_DISK_SWAP STARPU_DISK_SWAP_SIZE
mkdir "$work/swap"

# train NAME COMMAND...: weights in $work/NAME; peak: the most MB in main memory; out: MB that were
# written to the folder
train() {
  name=$1; shift
  timeout -k 5 300 "$@" --save "$work/$name" >"$work/out" 2>"$work/err" || return
  peak=$(sed -n 's/^Memory  *at most \([0-9]*\)\..*/\1/p' "$work/out")
  limit=$(sed -n 's/^Memory .* of \([0-9]*\)\..*/\1/p' "$work/out")
  out=$(sed -n 's/^Memory .*; \([0-9]*\)\..* swapped out.*/\1/p' "$work/out")
}
same() { cmp -s "$work/$1" "$work/$2"; }

# in_less NAME COMMAND...: without a limit, then with a half and an eighth of that memory
in_less() {
  what=$1; shift
  if ! train whole "$@" || ! train most "$@" --memory-limit cpu=4G || ! same whole most ||
    [ "$out" != 0 ]; then
    not_ok "$what in 4 GiB: the weights without a limit, and nothing is swapped"; return
  fi
  needs=$peak
  ok "$what takes $needs MB"
  for part in 2 8; do
    mb=$((needs / part))
    train part "$@" --memory-limit "cpu=$((mb * 1000000))" --swap "$work/swap" \
      --stall-timeout 120 &&
      same whole part && [ "$peak" -le "$limit" ] && [ "$limit" -le "$mb" ] && [ "$out" -gt 0 ]
    verdict $? "$what in 1/$part, at most $peak MB of $mb, $out MB swapped out: the same bits"
  done
}
wide=256,512,512,512,512,512,512,512,512,512,512,512,512,512,512,512,512,512
mlp="$trainers/mlp --data digits --hidden $wide --optimizer adam --batch 256 --steps 3"
lm="$trainers/lstm_lm --data grammar --hidden 150 --embed 150 --layers 11 --bptt 24 --batch 16"
lm="$lm --steps 3 --optimizer adam"
in_less "mlp, 1 replica" $mlp --replicas 1
in_less "mlp, 2 replicas" $mlp --replicas 2 --kvstore device
in_less "lstm_lm, 1 replica, clipped" $lm --replicas 1 --clip 1
in_less "lstm_lm, 2 replicas, chunks" $lm --replicas 2 --chunk 8 --clip 0
STARPU_SCHED=dmdas in_less "mlp, dmdas, 2 microbatches" $mlp --replicas 1 --microbatches 2
[ -z "$(ls -A "$work/swap")" ]; verdict $? "the folder is empty at the end"

# a checkpoint is written from the swap folder's tensors, and read
less="--memory-limit cpu=12M --swap $work/swap"
train whole $mlp --replicas 2 &&
  train first $mlp --replicas 2 $less --steps 2 --checkpoint "$work/c" --checkpoint-every 1 &&
  train second $mlp --replicas 2 $less --checkpoint "$work/c" --checkpoint-every 1 --resume &&
  same whole second
verdict $? "a resumed run in 12 MiB: the same bits"

# ---- impossible limits ----
# refused CODE WORDS COMMAND...: one line
refused() {
  code=$1 words=$2; shift 2
  timeout -k 5 100 "$@" --quiet >"$work/out" 2>"$work/err"; got=$?
  if [ "$got" = "$code" ] && [ "$(grep -c . "$work/err")" = 1 ] &&
    grep -q -e "$words" "$work/err"; then
    ok "$(sed "s|$work/||g" "$work/err")"
  else
    not_ok "code $got, not $code: $words"
  fi
}
small="$trainers/mlp --data digits --optimizer adam --batch 256 --steps 4"
refused 1 "^mlp: .*swap" $mlp --memory-limit cpu=16M
needs="needs .* MB of main memory at once, but the limit is 4.2 MB; .*cpu=5M"
refused 1 "^mlp: adam (layer fc1) $needs), or cut the layer.s parameters into smaller shards" \
  $small --replicas 1 --memory-limit cpu=4M --swap "$work/swap"
refused 1 "^mlp: .*nowhere: .*make it first" $small --memory-limit cpu=8M --swap "$work/nowhere"
touch "$work/file"
refused 1 "^mlp: .*file: is no folder" $small --memory-limit cpu=8M --swap "$work/file"
refused 1 "^mlp: /proc: .*cannot be written to" $small --memory-limit cpu=8M --swap /proc
STARPU_DISK_SWAP_SIZE=4 refused 1 "^mlp: .*has room for 4.2 MB" \
  $small --memory-limit cpu=8M --swap "$work/swap"
STARPU_DISK_SWAP_SIZE=17 refused 1 "^mlp: .*swap: the swap folder is full" $mlp $less
if mkdir "$work/disk" && mount -t tmpfs -o size=20m none "$work/disk" 2>/dev/null; then
  refused 1 "^mlp: .*disk: the swap folder is full" $mlp --memory-limit cpu=12M --swap "$work/disk"
  umount "$work/disk"
else
  ok "a disk of 20 MB # SKIP nothing can be mounted here"
fi
refused 2 "memory limit 'cpu=8X'" $small --memory-limit cpu=8X
refused 2 "twice" $small --memory-limit cpu=8M,cpu=9M
refused 2 "serves nothing" $small --memory-limit cuda=8M --swap "$work/swap"
STARPU_LIMIT_CPU_MEM=9 refused 2 "STARPU_LIMIT_CPU_MEM=9 in the environment" \
  $small --memory-limit cpu=8M

# ---- stalls ----
if [ -x "$failing" ]; then
  lenet="$failing --quiet --batch 100 --steps 12 --replicas 2 --save $work/w"
  lenet="$lenet --checkpoint $work/l --checkpoint-every 5"
  SL_FAIL=dense_forward:30 SL_FAIL_BY=stall timeout -k 5 100 $lenet --stall-timeout 1 \
    >"$work/out" 2>"$work/err"
  code=$?
  [ $code = 1 ] && grep -q "none runs: .* tasks are submitted" "$work/err" &&
    grep -q "waits for" "$work/err" && [ ! -e "$work/w" ] &&
    [ "$(tail -n 1 "$work/err" | grep -c '^failing_lenet: stalled: no task has ended')" = 1 ]
  verdict $? "a stall: $(tail -n 1 "$work/err")"
  timeout -k 5 100 $lenet --resume >"$work/out" 2>"$work/err" && [ -e "$work/w" ]
  verdict $? "its last checkpoint is whole"
  rm -rf "$work/l"
  SL_FAIL=sgd:9 SL_FAIL_BY=sleep timeout -k 5 100 $lenet --stall-timeout 2 \
    >"$work/out" 2>"$work/err" &&
    grep -q "[a-z0-9_]* (layer .*) runs, but no task has ended" "$work/err"
  verdict $? "a task that takes long is not a stall"
fi

echo "1..$n"
exit $failed
