#!/bin/sh
# From a GPU to main memory to a folder on disk, on the stand-in for a GPU (tests/standin):
# trainings with little memory end with the same weights to the bit as without limits.
set -u
trainers=${TRAINERS:-examples}
not_seen="no GPU swapped to disk"
. "${SL_SRCDIR:-.}/tests/common/standin.sh"
unset STARPU_LIMIT_CPU_MEM STARPU_LIMIT_CUDA_MEM STARPU_PREFETCH STARPU_SUBALLOCATOR \
  STARPU_DISK_SWAP STARPU_DISK_SWAP_SIZE
mkdir "$work/swap"
# train NAME TRAINER OPTIONS...; out: MB written to the folder
train() {
  name=$1 trainer=$2; shift 2
  timeout -k 5 300 "$trainers/$trainer" --save "$work/$name" "$@" >"$work/out" 2>"$work/err" ||
    return
  out=$(sed -n 's/^Memory .*; \([0-9]*\)\..* swapped out.*/\1/p' "$work/out")
}
# in_less LIMITS TRAINER OPTIONS...
in_less() {
  limits=$1; shift
  for l in $limits; do
    train part "$@" --memory-limit "$l" --swap "$work/swap" --stall-timeout 120 &&
      cmp -s "$work/whole" "$work/part" && [ "$out" -gt 0 ]
    verdict $? "$what in $l, ${out:-no} MB swapped out: the same bits"
  done
}
mlp="mlp --data digits --batch 64 --steps 3 --optimizer adam --hidden 256,256,256,256,256,256"
what="mlp on a GPU"
train whole $mlp --devices cuda:0 || not_ok "$what"
in_less "cuda=4M,cpu=6M cuda=4M,cpu=4M" $mlp --devices cuda:0
what="mlp on a GPU, updated on the CPU"
train whole $mlp --devices cuda:0 --kvstore local || not_ok "$what"
in_less "cuda=4M,cpu=5M" $mlp --devices cuda:0 --kvstore local
what="mlp on a GPU and a CPU"
train whole $mlp --devices cuda:0,cpu --kvstore local --split 1,1 || not_ok "$what"
in_less "cuda=5M,cpu=6M" $mlp --devices cuda:0,cpu --kvstore local --split 1,1

echo "1..$n"
exit $failed
