#!/bin/sh
# gpu-check.sh's trainers, with the stand-in for a GPU: each follows its run on a CPU.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
[ -e tests/standin/.libs/libcudart.so ] ||
  skip_all "a build without the stand-in (configure --with-cuda=standin): $(basename "$0" .sh)"
GPU_CHECK_PART=trainers exec "${SL_SRCDIR:-.}/tests/gpu/gpu-check.sh"
