#!/bin/sh
# dist_*_device on the stand-in for a GPU (tests/standin), one a rank: sums, compression and updates
# run there, the weights are those of one process on the CPU, and the same bits twice. Messages
# begin on the GPU if MPI takes its memory, and on the CPU otherwise. An MPI without support for
# GPUs can take the stand-in's memory, which is the host's (SL_STANDIN_MPI_AWARE=1). Both give the
# same bits. With dist_async only one worker has a fixed order, so there the second rank is a
# server.
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
[ -e tests/standin/.libs/libcudart.so ] ||
  skip_all "a build without the stand-in (configure --with-cuda=standin): no message left a GPU"
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
program=${SL_BUILDDIR:-.}/tests/gpu/gpu_ranks
[ -x "$program" ] || skip_all "a build without cmocka: tests/gpu/gpu_ranks is not there"
export STARPU_NCUDA=1 SL_STANDIN_GPUS=1

# train NAME RANKS DEVICES KVSTORE SERVERS MATH COMPRESSION BATCH: weights in NAME.w, each rank's
# counts in NAME.counts
train() {
  name=$1 count=$2; shift 2
  mpirun_for 100 -np "$count" "$program" train "$@" "$work/$name.w" \
    >"$work/$name.counts" 2>"$work/log" && return
  not_ok "$name: $*: does not train: $(head -n 2 "$work/log")"; return 1
}
# counts NAME OPERATION: CPU+GPU of all ranks, as two numbers
counts() {
  tr ' ' '\n' <"$work/$1.counts" | sed -n "s/^$2=//p" |
    awk -F+ '{ c += $1; g += $2 } END { print c + 0, g + 0 }'
}
on_gpu() { set -- $(counts "$@"); [ "$1" = 0 ] && [ "$2" -gt 0 ]; }
sent() { sed -n "s/^rank=$2 .*bytes=//p" "$work/$1.counts"; }
same() { cmp -s "$work/$1.w" "$work/$2.w"; }

# near NAME OTHER MILLIONTHS: at most this share of the weights may differ by more than 1e-5 of the
# largest weight
near() {
  set -- "$3" $("$program" compare "$work/$1.w" "$work/$2.w")
  if [ "${3:-1000000}" -le "$1" ]; then
    ok "$what: as on the CPU, within $2, $3 in a million beyond 1e-5"
  else
    not_ok "$what: ${2:-?} from the CPU's, ${3:-?} in a million beyond 1e-5"
  fi
}

# device WHAT KVSTORE SERVERS MATH COMPRESSION BATCH: with an MPI that does not take the memory,
# with one that does, and again
device() {
  what="$1" kvstore=$2; shift 2
  SL_STANDIN_MPI_AWARE=0 train staged 2 cuda:0 "$kvstore" "$@" || return
  SL_STANDIN_MPI_AWARE=1 train direct 2 cuda:0 "$kvstore" "$@" || return
  SL_STANDIN_MPI_AWARE=1 train again 2 cuda:0 "$kvstore" "$@" || return
  for run_of in staged direct; do
    check "$what: $run_of: updates on the GPU" on_gpu $run_of update
    set -- $(counts $run_of reduce)
    check "$what: $run_of: sums on the GPU: $2 of $(($1 + $2)) tasks" test "$2" -ge 48
  done
  set -- $(counts staged send) $(counts staged receive)
  check "$what: staged: messages begin on the CPU: $1 sent, $3 received" test "$2$4" = 00
  set -- $(counts direct send) $(counts direct receive)
  check "$what: direct: messages begin on the GPU: $2 sent, $4 received" \
    test "$2" -ge 24 -a "$4" -ge 24
  check "$what: the same bits either way" same staged direct
  check "$what: the same bits twice" same direct again
}
same_bytes() {
  check "$what: as many bytes of rank $1 either way: $(sent direct "$1")" \
    test "$(sent direct "$1")" = "$(sent staged "$1")"
}

train one 1 cpu local 0 f32 none 24
train alone 1 cuda:0 device 0 f32 none 24 && {
  what="one rank on the GPU"
  near alone one 0
  set -- $(counts alone reduce)
  check "$what: all sums on the GPU, the norm's and the loss's, too: $2 of $(($1 + $2)) tasks" \
    test "$1" = 0 -a "$2" -gt 0
}
device "in step, f32" dist_sync_device 0 f32 none 12 && {
  near direct one 0
  same_bytes 0
  same_bytes 1
}
# a gradient of other rounding may become another half float
train halves 2 cpu dist_sync 0 f32 fp16 12
device "in step, fp16" dist_sync_device 0 f32 fp16 12 && {
  near direct halves 1000
  same_bytes 0
  same_bytes 1
  check "$what: compression on the GPU" on_gpu direct compress_half
  check "$what: decompression on the GPU" on_gpu direct decompress
}
device "in step, bf16 activations, 2 bits" dist_sync_device 0 bf16 2bit:0.01 12 && {
  same_bytes 0
  same_bytes 1
  check "$what: compression on the GPU" on_gpu direct compress_residual
}

# With single tensors the message that ends a rank is as long as a push: rank 0 sends it once.
device "out of step, f32" dist_async_device 1 f32 none 24 && { near direct one 0; same_bytes 1; }
device "out of step, bf16 activations" dist_async_device 1 bf16 none 24 && same_bytes 1
device "out of step, fp16" dist_async_device 1 f32 fp16 24 && {
  same_bytes 1
  check "$what: compression on the GPU" on_gpu direct compress_half
}

# two workers, whose updates come in any order
what="out of step, two workers, compressed"
if SL_STANDIN_MPI_AWARE=1 train two 2 cuda:0 dist_async_device 0 f32 1bit 12; then
  check "$what: updates on the GPU" on_gpu two update
  set -- $(counts two send)
  check "$what: messages begin on the GPU: $2 sent" test "$2" -ge 24
fi

# Which GPUs a rank uses, of several on the machine.
unset STARPU_NCUDA
# shared WANTED WHAT DEVICES: the ranks' GPUs, rank by rank
shared() {
  wanted=$1 what=$2; shift 2
  train shared 2 "$1" dist_sync_device 0 f32 none 12 || return
  found=$(sed -n 's/^rank=\([0-9]* \)gpus=\([^ ]*\).*/\1\2/p' "$work/shared.counts" | sort -n |
    sed 's/.* //' | tr '\n' ' ')
  check "$what: the ranks have the GPUs $found" test "$found" = "$wanted "
}
SL_STANDIN_GPUS=2 shared "0 1" "two GPUs, two ranks" cuda:0
SL_STANDIN_GPUS=4 shared "0,1 2,3" "four GPUs, two ranks" cuda:0,cuda:1
STARPU_WORKERS_CUDAID=0 shared "0 0" "one GPU for two ranks by hand" cuda:0
SL_STANDIN_GPUS=2 STARPU_WORKERS_CUDAID=0 SL_STANDIN_MPI_AWARE=1 shared "0 0" \
  "the first of two GPUs, whose memory MPI takes" cuda:0
check "$what: a thread of the program keeps the second one" \
  test "$(grep -c ' kept=1 ' "$work/shared.counts")" = 2
SL_STANDIN_GPUS=2 STARPU_NCUDA=1 shared "0 0" "STARPU_NCUDA=1" cuda:0
shared "0 0" "one GPU, two ranks, CPUs in the device list" cpu
start 2 "$program" train cuda:0 dist_sync_device 0 f32 none 12 "$work/none.w"
until_true 90 have_ended 0 1
check "one GPU, two ranks: both end with an error" test "$(code_of 0) $(code_of 1)" = "1 1"
check "one GPU, two ranks: both say which one lacks a GPU" test "$(cat "$run"/err.? |
  grep -c 'rank 1 of the 2 ranks on this machine needs GPU 1, ')" = 2

echo "1..$n"
exit $failed
