#!/bin/sh
# A build with CUDA does not need cuBLASLt and cuDNN before a device is opened, and NVIDIA's libraries
# have all functions that it looks up then (core/runtime/cuda_libraries.h).
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=
build=${SL_BUILDDIR:-.} source=${SL_SRCDIR:-.}
grep -q '^#define SL_HAVE_CUDA 1' "$build/config.h" || skip_all "a build without CUDA"
[ -z "${SL_STANDIN:-}" ] || skip_all "a stand-in has its own libraries"

needed() { ! readelf -d "$build/.libs/libstarling.so" | grep NEEDED | grep -q "$1"; }
for library in cublas cudnn cusparse cusolver; do
  check "the library does not need $library at the start" needed "lib$library"
done

# functions LIBRARY: those of its table, with their whole names
functions() {
  sed -n 's/^SL__FUNCTION(\([A-Za-z]*\), \(.*\))$/\1\2/p' "$source/core/runtime/$1.def"
}
has() { nm -D --defined-only "$1" | sed 's/@.*//' | grep -q " $2\$"; }
for pair in cublaslt:libcublasLt cudnn:libcudnn; do
  table=${pair%:*} name=${pair#*:}
  wanted=$(strings "$build/.libs/libstarling.so" | grep -m 1 "^$name\.so\.[0-9]*\$")
  file=$(ldconfig -p 2>/dev/null | sed -n "s/.*$wanted .*=> //p" | head -n 1)
  check "$table: the library's file has a name" test -n "$wanted"
  if [ -z "$file" ]; then
    skip "$wanted" "not found on this machine"
    continue
  fi
  for function in $(functions $table); do
    check "$wanted has $function" has "$file" "$function"
  done
done
echo "1..$n"
exit $failed
