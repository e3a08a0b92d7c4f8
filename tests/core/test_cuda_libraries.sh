#!/bin/sh
# A build with CUDA does not need cuBLASLt and cuDNN where there is no GPU, and NVIDIA's libraries
# have all functions that it looks up where there is one (core/runtime/cuda_libraries.h).
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=
build=${SL_BUILDDIR:-.} source=${SL_SRCDIR:-.}
grep -q '^#define SL_HAVE_CUDA 1' "$build/config.h" || skip_all "a build without CUDA"
[ -z "${SL_STANDIN:-}" ] || skip_all "a stand-in has its own libraries"

needed=$(readelf -d "$build/.libs/libstarling.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
without() { case $needed in *"$1"*) return 1 ;; *) return 0 ;; esac; }
with() { ! without "$1"; }
check "the library needs CUDA's runtime" with libcudart
for library in cublas cudnn cusparse cusolver; do
  check "the library does not need $library at the start" without "lib$library"
done

# functions LIBRARY: those of its table, with their whole names
functions() {
  sed -n 's/^SL__FUNCTION(\([A-Za-z]*\), \(.*\))$/\1\2/p' "$source/core/runtime/$1.def"
}
has() { nm -D --defined-only "$1" | sed 's/@.*//' | grep -q " $2\$"; }
for pair in cublaslt:libcublasLt cudnn:libcudnn; do
  table=${pair%:*} name=${pair#*:}
  wanted=$(grep -aoE "$name\.so\.[0-9]+" "$build/.libs/libstarling.so" | head -n 1)
  file=
  [ -z "$wanted" ] ||
    file=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | sed -n "s/.*$wanted .*=> //p" | head -n 1)
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
