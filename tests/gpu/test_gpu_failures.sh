#!/bin/sh
# Failures of a GPU, on the stand-in for one (tests/standin): no GPU, no driver, no memory, a
# library that cannot be loaded or is of another version, a kernel that fails at once or long after
# its launch. Each ends with one clear line as the last one, exit code 1, and whole checkpoints.
set -u
lenet=${LENET:-examples/lenet} mlp=${MLP:-examples/mlp} predict=${PREDICT:-tools/starling-predict}
not_seen="no GPU was made to fail"
. "${SL_SRCDIR:-.}/tests/common/standin.sh"
# black images: they need no drawing, and an evaluation is short
zeros() { head -c "$1" /dev/zero; }
pictures train 96 zeros zeros
pictures t10k 16 zeros zeros
train() {
  timeout -k 5 200 "$lenet" --quiet --data "$work/data" --batch 16 --steps 6 --devices cuda:0 \
    --checkpoint "$work/c" --checkpoint-every 1 "$@" >"$work/out" 2>"$work/err"
}
last() { grep . "$work/err" | tail -n 1; }

# fails NAME WORDS SETTING...: a training with these environment variables fails
fails() {
  name=$1 words=$2; shift 2
  rm -rf "$work/c"
  (export "$@"; train); code=$?
  # StarPU and the C library print messages when they abort; Starling's is there once, and last
  if [ $code = 1 ] && last | grep -q -e "$words" &&
    [ "$(grep -c '^lenet: [^.]' "$work/err")" = 1 ] && [ ! -s "$work/out" ]; then
    ok "$name: $(last)"
  else
    not_ok "$name: code $code"
    return 1
  fi
}
fails "no GPU" "^lenet: device 'cuda:0': there are 0 .*no CUDA-capable device" SL_STANDIN_GPUS=0
fails "a driver too old" "^lenet: device 'cuda:0': there are 0 .*driver version is insufficient" \
  SL_STANDIN_DRIVER=none
fails "no room for the workspace" "^lenet: GPU 0 has no room for a workspace" \
  SL_STANDIN_MEMORY=30000000
fails "no room for the largest layer" \
  "^lenet: the placement cannot fit: the layers on cuda:0 .*, but it has" SL_STANDIN_MEMORY=70000000

# a library that the loader meets first
library=$(ls "${SL_BUILDDIR:-.}/tests/standin/.libs" | grep -x "libcudnn.so.[0-9]*" | head -n 1)
mkdir -p "$work/lib" && echo "no library" >"$work/lib/$library"
fails "cuDNN cannot be read" "^lenet: $library, which a GPU needs, cannot be loaded (.*too short" \
  LD_LIBRARY_PATH="$work/lib:${LD_LIBRARY_PATH:-}"
: >"$work/empty.c"
if ${CC:-cc} -shared -o "$work/lib/$library" "$work/empty.c"; then
  fails "another version of cuDNN" "^lenet: $library has no function cudnn[A-Za-z]*: this build" \
    LD_LIBRARY_PATH="$work/lib:${LD_LIBRARY_PATH:-}"
else
  skip "another version of cuDNN" "no C compiler"
fi

error="an illegal memory access was encountered"
# a step is one task
lines="^lenet: cuda:0: $error, in subgraph (layer conv1\.\.fc2) \[.* bytes\]"
fails "the first kernel of a training fails, which is reported late" "$lines" SL_STANDIN_FAIL=5
if fails "a later kernel of a training fails, which is reported late" "$lines" \
  SL_STANDIN_FAIL=70; then
  left=$(ls "$work/c" | grep -c safetensors)
  if [ "$left" -gt 0 ] && train --resume; then
    ok "a training resumes from one of $left checkpoints"
  else
    not_ok "no whole checkpoint of $left"
  fi
fi

# ---- a library that fails once when it is asked for an algorithm ----
# "there is none" is an answer: less is asked for. Other failures are the task's, since other
# algorithms would give other bits.
dnn=cudnnGetConvolution lt=cublasLtMatmulAlgoGetHeuristic
for function in cudnnSetTensor4dDescriptor ${dnn}ForwardAlgorithm_v7 \
  ${dnn}BackwardFilterWorkspaceSize; do
  fails "$function has no memory" \
    "^lenet: .* on cuda:0: cuDNN: CUDNN_STATUS_ALLOC_FAILED" SL_STANDIN_STATUS=$function=4003
done
fails "a part of cuDNN is missing" "^lenet: .* on cuda:0: cuDNN: " \
  SL_STANDIN_STATUS=${dnn}ForwardAlgorithm_v7=3009
fails "cuBLAS has no memory" "^lenet: .* on cuda:0: cuBLAS: CUBLAS_STATUS_ALLOC_FAILED" \
  SL_STANDIN_STATUS=$lt=3
# trains NAME SETTING: a training with this environment variable succeeds
trains() {
  rm -rf "$work/c"
  if (export "$2"; train); then ok "$1"; else not_ok "$1: $(last)"; fi
}
trains "cuDNN does not support so many images" \
  SL_STANDIN_STATUS=${dnn}ForwardAlgorithm_v7=3002
trains "a tensor is too large for cuDNN" SL_STANDIN_STATUS=cudnnSetTensor4dDescriptor=2000
trains "cuBLAS does not add this bias" SL_STANDIN_STATUS=$lt=15

# ---- a kernel that CUDA does not record ----
# a slot of the loader records when it comes for the second time: many steps of a small network
small() {
  timeout -k 5 200 "$mlp" --quiet --data "$work/data" --hidden 8 --batch 16 --steps 40 \
    --devices cuda:0 "$@" >"$work/out" 2>"$work/err"
}
small --eager --save "$work/eager.safetensors"
if SL_STANDIN_REFUSE=3 SL_STANDIN_COUNT=$work/count small --save "$work/refused.safetensors" &&
  cmp -s "$work/eager.safetensors" "$work/refused.safetensors" &&
  [ "$(grep -c 'is no CUDA graph' "$work/err")" = 1 ] &&
  grep -q 'is no CUDA graph, .*: [a-z_]* (layer fc[12]) on cuda:0: ' "$work/err" &&
  grep -qx 'graphs 0' "$work/count"; then
  ok "a step that is not recorded: $(grep 'is no CUDA graph' "$work/err")"
else
  not_ok "a step that is not recorded: $(last)"
fi

# ---- predictions: a batch is one task, and the message cannot name its kernel ----
rm -rf "$work/c"
train --devices cpu:0 --steps 1 --save "$work/lenet.json"
line="^starling-predict: cuda:0: $error, in subgraph \(layer conv1\.\.fc2\) \[.* bytes\]"
for kernel in 5 30; do
  SL_STANDIN_FAIL=$kernel timeout -k 5 100 "$predict" --devices cuda:0 --batches 1 --max-batch 4 \
    --top 0 "$work/lenet.json" "$work/data/t10k-images-idx3-ubyte" \
    >"$work/out" 2>"$work/err"
  code=$?
  said="an answer's kernel $kernel fails: code $code, $(last)"
  if [ $code = 1 ] && last | grep -qE "$line"; then ok "$said"; else not_ok "$said"; fi
done

# ---- CPU workers beside GPUs, on a machine of eight cores as StarPU sees it ----
# workers DEVICES: prints the number of CPU workers
workers() {
  (
    unset STARPU_NCPU STARPU_NCPUS
    export HWLOC_SYNTHETIC="core:8 pu:1" STARPU_WORKERS_NOBIND=1
    timeout -k 5 100 "$lenet" --data "$work/data" --batch 16 --steps 1 --devices "$1" \
      2>"$work/err" | sed -n 's/.*StarPU.* \([0-9]*\) CPU and .*/\1/p' | head -n 1
  )
}
alone=$(workers cuda:0) beside=$(workers cuda:0,cpu)
[ "${alone:-9}" -le 2 ] && [ "${beside:-0}" -gt 2 ]
verdict $? "${alone:-no} CPU workers with a list of GPUs, ${beside:-no} with a list of both"

# ---- two GPUs that differ only in their place on the bus ----
if SL_STANDIN_GPUS=2 STARPU_NCUDA=2 timeout -k 5 200 "$lenet" --data "$work/data" --batch 16 \
  --steps 2 --devices cuda:0,cuda:1 --split auto >"$work/out" 2>"$work/err" &&
  grep -q "the devices are alike" "$work/out" "$work/err"; then
  ok "two GPUs of a kind get the same"
else
  not_ok "two GPUs of a kind: no even split"
fi


# ---- a split by measurement under a limit that has room for the training alone ----
if timeout -k 5 200 "$mlp" --steps 2 --batch 512 --devices cuda:0,cpu --split auto \
  --memory-limit cpu=15M >"$work/out" 2>"$work/err" &&
  grep -qhF "no room for a measurement with even ones" "$work/out" "$work/err"; then
  ok "a split without room for a measurement"
else
  not_ok "a split without room for a measurement: $(last)"
fi

echo "1..$n"
exit $failed
