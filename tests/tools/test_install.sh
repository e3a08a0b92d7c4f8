#!/bin/sh
# The installation: the public headers as strict C and C++, the exported symbols, and that "make
# uninstall" leaves no file and no folder of ours.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
builddir=${SL_BUILDDIR:-.}
headers=$(cd "${SL_SRCDIR:-.}/include" && pwd)
library=$(cd "$builddir" && pwd)/.libs/libstarling.so
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
shown='out err'

# ---- headers ----
cat >"$work/shape.c" <<'END'
#include <starling.h>
int main(void) {
  struct sl_shape shape = SL_SHAPE(1, 28, 28);
  return sl_shape_count(&shape) != 784;
}
END
cp "$work/shape.c" "$work/shape.cc"
# compiles COMPILER STANDARD FILE
compiles() {
  "$1" -std="$2" -pedantic -Wall -Wextra -Werror -I"$headers" -fsyntax-only "$3" 2>"$work/err"
}
# strict COMPILER FILE STANDARD...
strict() {
  compiler=$1 file=$2; shift 2
  for standard; do
    if command -v "$compiler" >/dev/null; then
      check "$compiler -std=$standard -pedantic" compiles "$compiler" "$standard" "$work/$file"
    else
      skip "$compiler -std=$standard" "no $compiler"
    fi
  done
}
for compiler in gcc clang; do strict $compiler shape.c c99 c11 c17; done
for compiler in g++ clang++; do strict $compiler shape.cc c++11 c++17 c++20; done
for header in "$headers"/starling/*.h; do
  echo "#include <starling/${header##*/}>" >"$work/alone.c"
  check "starling/${header##*/} alone" compiles gcc c11 "$work/alone.c"
done

# ---- exported symbols ----
if command -v nm >/dev/null && [ -e "$library" ]; then
  nm -D --defined-only "$library" | awk '{ print $3 }' >"$work/symbols"
  check "the interface is exported" grep -qx sl_trainer_new "$work/symbols"
  check "and nothing else, kernels of runs over TCP/IP aside" \
    sh -c '! grep -vE "^sl_[a-z0-9]|^sl__.*_cpu$" "$1" >"$2"' sh "$work/symbols" "$work/out"
else
  skip "exported symbols" "no nm, or no shared library"
fi

# ---- a StarPU that other users cannot reach ----
mkdir -p "$work/closed/starpu/lib" "$work/open/starpu/lib" && chmod 755 "$work" "$work"/open
chmod 700 "$work/closed"
# says LIBDIR PREFIX TEXT: the end of "make install"; no TEXT: it says nothing
says() {
  "${SL_SRCDIR:-.}/build-aux/check-starpu" "$1" "$2" "" >"$work/out" 2>"$work/err" || return 1
  if [ -n "$3" ]; then grep -q "$3" "$work/err"; else test ! -s "$work/err"; fi
}
if "${SL_SRCDIR:-.}/build-aux/closed-folder" "$work" >"$work/out"; then
  check "StarPU in a closed folder: make install says what to do" \
    says "$work/closed/starpu/lib" /usr/local "quickstart install /usr/local"
  check "it names the closed folder" grep -q "^and .*/closed is closed" "$work/err"
  check "StarPU for all users" says "$work/open/starpu/lib" /usr/local ""
  check "a prefix in a closed folder is for its owner" \
    says "$work/closed/starpu/lib" "$work/closed" ""
else
  skip "a StarPU in a closed folder" "$(cat "$work/out") is closed itself"
fi
check "a StarPU that is gone is an error" sh -c '! "$@" 2>"$0"' "$work/err" \
  "${SL_SRCDIR:-.}/build-aux/check-starpu" "$work/gone" /usr/local ""

into() { # LIBDIR DESTDIR: what make install says of libraries there, built for /usr/local/lib
  "${SL_SRCDIR:-.}/build-aux/check-starpu" "$work" /elsewhere "$2" "$1" /usr/local/lib 2>&1 |
    grep "NOTE: configure was told another prefix"
}
check "another prefix than configure's: make install says that programs do not start" \
  into /elsewhere/lib ""
check "not where the folders are the same" sh -c '! "$@"' sh into /usr/local/lib ""
check "and not of a package" sh -c '! "$@"' sh into /elsewhere/lib /tmp/package

# ---- make install, make uninstall ----
libdir=$(sed -n 's/^libdir = //p' "$builddir/Makefile")
prefix=$(sed -n 's/^prefix = //p' "$builddir/Makefile")
libdir=$(echo "$libdir" | sed "s|[$][{(]exec_prefix[)}]|$prefix|")
case $libdir in
  /usr/lib | /usr/lib/*-linux-gnu) ;;
  *)
    check "pkg-config gives the run path" \
      grep -q '^Libs: .*-Wl,-rpath,[$]{libdir}' "$builddir/starling.pc" ;;
esac
place=$work/place
# a static library names nothing that it needs: the .pc file must. The archive of all objects is
# there whether or not one is installed.
links_statically() {
  libraries=$(PKG_CONFIG_PATH=$builddir:${PKG_CONFIG_PATH-} pkg-config --static --libs starling |
    sed 's/-lstarling\>//') || return 1
  gcc "${SL_SRCDIR:-.}/examples/predict.c" -I"$headers" "$builddir/.libs/libstarling_all.a" \
    $libraries -o "$work/predict" 2>"$work/err"
}
if ! command -v pkg-config >/dev/null || [ ! -e "$builddir/.libs/libstarling_all.a" ]; then
  skip "a static link by pkg-config" "no pkg-config, or no archive"
elif grep -q '^#define SL_SANITIZE 1' "$builddir/config.h" ||
  [ -e "$builddir/tests/standin/.libs/libcudart.so" ]; then
  skip "a static link by pkg-config" "such a build is not installed"
else
  check "pkg-config --static names all libraries" links_statically
fi
if grep -q '^#define SL_SANITIZE 1' "$builddir/config.h"; then
  skip "make install" "a build with sanitizers is not installed"
elif make -C "$builddir" install DESTDIR="$place" >"$work/out" 2>"$work/err"; then
  ok "make install"
  find "$place" -type f >"$work/files"
  for file in bin/lenet bin/starling-run include/starling/nn.h lib/libstarling.so man1/lenet.1 \
    pkgconfig/starling.pc completions/starling doc/starling/README.md \
    doc/starling/doc/install.md doc/starling/doc/trace.svg doc/starling/examples/predict.c; do
    check "$file is installed" sh -c 'find "$1" -path "*/$2*" | grep -q .' sh "$place" "$file"
  done
  if grep -q '^LIBDIR_RPATH = .' "$builddir/Makefile" && command -v readelf >/dev/null; then
    for program in lenet starling-predict; do
      check "$program finds the library without ldconfig" sh -c \
        'readelf -d "$1" | grep RUNPATH | grep -qE "(\[|:)$2(\]|:)"' sh \
        "$(find "$place" -path "*/bin/$program")" "$libdir"
    done
  fi
  make -C "$builddir" uninstall DESTDIR="$place" >"$work/out" 2>"$work/err"
  verdict $? "make uninstall"
  find "$place" ! -type d >"$work/out"
  check "no file is left" test ! -s "$work/out"
  check "no folder of ours is left" \
    sh -c '! find "$1" -type d -name starling | grep .' sh "$place"
else
  not_ok "make install"
fi

echo "1..$n"
exit $failed
