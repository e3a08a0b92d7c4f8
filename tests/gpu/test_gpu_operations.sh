#!/bin/sh
# gpu-check.sh's operations, with the stand-in for a GPU: each gives there what it gives on a CPU.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
[ -e tests/standin/.libs/libcudart.so ] ||
  skip_all "a build without the stand-in (configure --with-cuda=standin): $(basename "$0" .sh)"
GPU_CHECK_PART=operations exec "${SL_SRCDIR:-.}/tests/gpu/gpu-check.sh"
