#!/bin/sh
# A GPU's memory, on the stand-in for one (tests/standin). With less of it than the training needs
# StarPU moves tensors out and in, and the bits are the same; impossible limits are refused, and
# nothing hangs; a steady state allocates nothing; two GPUs.
set -u
trainers=${TRAINERS:-examples}
not_seen="no GPU's memory was limited"
. "${SL_SRCDIR:-.}/tests/common/standin.sh"
unset STARPU_LIMIT_CUDA_MEM STARPU_PREFETCH STARPU_SUBALLOCATOR
# grey noise of four classes, the same each time
noise() {
  awk -v n="$1" 'BEGIN {
    x = 1
    for (i = 0; i < n; i++) { x = (x * 75 + 74) % 65537; printf "%c", 33 + x % 90 }
  }'
}
classes() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "%c", 1 + i % 4 }'; }
pictures train 256 noise classes
pictures t10k 16 noise classes
# train NAME TRAINER OPTIONS...
train() {
  name=$1 trainer=$2; shift 2
  timeout -k 5 200 "$trainers/$trainer" --quiet --data "$work/data" --save "$work/$name" \
    --log "$work/$name.jsonl" "$@" >"$work/out" 2>"$work/err"
}
same() { cmp -s "$work/$1" "$work/$2"; }
losses() { sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,}]*\).*/\1 \2/p' "$work/$1.jsonl"; }
moved() { grep -q 'StarPU moves them out and in' "$work/err"; }

mlp="--devices cuda:0 --batch 128 --steps 12"
lenet="--devices cuda:0 --batch 32 --steps 3"
train mlp mlp $mlp; verdict $? "mlp with all the memory"
for mb in 4 5; do
  STARPU_LIMIT_CUDA_MEM=$mb train "mlp-$mb" mlp $mlp && moved && same mlp "mlp-$mb"
  verdict $? "mlp in $mb MiB, which is less than it needs: the same bits"
done
# updates by the CPU: no task of the GPU has all of fc1's weights, gradient and optimizer's state
local="--optimizer adam --kvstore local"
STARPU_LIMIT_CUDA_MEM=3 train mlp-local-3 mlp $mlp $local && moved &&
  train mlp-local mlp $mlp $local && same mlp-local mlp-local-3
verdict $? "mlp in 3 MiB, updated on the CPU: the same bits"
STARPU_LIMIT_CUDA_MEM=7 train mlp-adam-7 mlp $mlp --optimizer adam && moved &&
  train mlp-adam mlp $mlp --optimizer adam && same mlp-adam mlp-adam-7
verdict $? "mlp with adam in 7 MiB, which is less than it needs: the same bits"
train lenet lenet $lenet; verdict $? "lenet with all the memory"
STARPU_LIMIT_CUDA_MEM=4 train lenet-4 lenet $lenet && moved && same lenet lenet-4
verdict $? "lenet in 4 MiB, half of the memory that it needs: the same bits"
SL_STANDIN_MEMORY=$((70 << 20)) STARPU_SUBALLOCATOR=0 STARPU_PREFETCH=0 \
  train lenet-70 lenet $lenet && moved && same lenet lenet-70
verdict $? "lenet on a GPU of 70 MiB, of which the workspace takes 64: the same bits"

# refused NAME WORDS SETTINGS...: with one clear line
refused() {
  name=$1 words=$2; shift 2
  (export "$@"; train refused mlp $mlp); code=$?
  if [ $code = 1 ] && grep . "$work/err" | tail -n 1 | grep -q -e "$words"; then
    ok "$name: $(grep . "$work/err" | tail -n 1)"
  else
    not_ok "$name: code $code"
  fi
}
refused "a task that does not fit" \
  "^mlp: [a-z_]* (layer fc1) needs .* at once, but cuda:0 has room for" STARPU_LIMIT_CUDA_MEM=2
refused "prefetching into a memory that is too small" \
  "^mlp: the placement cannot fit.*STARPU_PREFETCH=0" STARPU_LIMIT_CUDA_MEM=4 STARPU_PREFETCH=1

# each tensor of a step gets the block of the step before
count() { sed -n 's/^allocations //p' "$work/count"; }
# counted STEPS: prints the number of allocations
counted() {
  SL_STANDIN_COUNT=$work/count STARPU_SUBALLOCATOR=0 \
    train counted mlp --devices cuda:0 --batch 32 --steps "$1" && count
}
# after 32 steps each of the loader's slots, at most 16, has come twice
few=$(counted 40) && many=$(counted 80) && [ "$few" -gt 0 ] && [ $((many - few)) -lt 20 ]
verdict $? "no allocation a step: ${few:-?} in 40 steps, ${many:-?} in 80"
launches=$(sed -n 's/^launches of graphs //p' "$work/count")
# a step is one CUDA graph, except the first one of each slot
[ "${launches:-0}" -ge 64 ] && [ "${launches:-0}" -le 80 ]
verdict $? "of 80 steps at least 64 are one CUDA graph each: ${launches:-no} launches"

# CUDA's context takes some hundred MB of a GPU, and a GPU in exclusive mode allows one process:
# a process has none where it has no worker, unless the program chose that GPU.
# contexts WANTED STARPU PROGRAM [ARGUMENTS]: WANTED: the GPUs with a context; STARPU: StarPU's
contexts() {
  wanted=$1 starpu=$2 name=$3; shift 3
  SL_STANDIN_GPUS=2 STARPU_WORKERS_CUDAID=$starpu STARPU_HOME=$work SL_STANDIN_COUNT=$work/count \
    SL_TEST_DEVICE=cuda:0 timeout -k 5 100 "${SL_BUILDDIR:-.}/tests/$name" "$@" 2>"$work/err" \
    >"$work/out"
  code=$?
  found=$(sed -n 's/^contexts *//p' "$work/count")
  [ $code = 0 ] && [ "$found" = "$wanted" ]
  verdict $? "StarPU on GPU $starpu, $name${1:+ $*}: code $code, contexts on $found"
}
# the first run measures all GPUs, and ends with GPU 1 current
contexts 0 0 gpu/gpu_two cuda:0
contexts 1 1 gpu/gpu_two cuda:0
# the program chooses GPU 1
contexts "0 1" 0 gpu/gpu_two cuda:0 1
if [ -x "${SL_BUILDDIR:-.}/tests/core/test_chain" ]; then
  contexts 1 1 core/test_chain # any thread frees a graph
else
  skip "any thread frees a graph" "a build without cmocka"
fi

# losses of the two slices of one GPU, within rounding
export STARPU_NCUDA=2 SL_STANDIN_GPUS=2
two="--devices cuda:0,cuda:1 --kvstore device --batch 128 --steps 12"
train two mlp $two && train again mlp $two && same two again
verdict $? "two GPUs, twice: the same bits"
train eager mlp $two --eager && same two eager
verdict $? "two GPUs, a task for each call: the same bits"
losses mlp >"$work/a"
losses two >"$work/b"
paste -d ' ' "$work/a" "$work/b" | awk '
  { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2 || $1 != $3) bad = 1 }
  END { exit bad || NR != 12 }'
verdict $? "two GPUs follow the losses of one"
STARPU_LIMIT_CUDA_MEM=5 train two-5 mlp $two && moved && same two two-5
verdict $? "two GPUs of 5 MiB each: the same bits"

echo "1..$n"
exit $failed
