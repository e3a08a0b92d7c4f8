#!/bin/sh
# "./quickstart install" as new users try it, with the default prefix and with another one: a user
# without HOME starts the programs and builds the README's program. Afterwards "make uninstall"
# leaves nothing. .ci/run calls it after ./quickstart check, whose objects serve again.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/common/tap.sh"
. "$top/tests/common/throwaway.sh"
shown='out err'
# what others installed here before is not what is tried
rm -rf /usr/local/lib/starling
files_of() { find "$@" ! -type d | sort; }
files_of /usr/local >"$work/before"

# private files are the rule here: quickstart must not follow it
umask 077
cd "$top" && env -u PKG_CONFIG_PATH ./quickstart install >"$work/out" 2>"$work/err"
verdict $? "quickstart install"
check "ldconfig knows the library" sh -c 'ldconfig -p | grep -q "/usr/local/lib/libstarling.so.0"'
tried /usr/local :

prefix=$work/else
cd "$work" && env -i PATH="$PATH" PKG_CONFIG_PATH=/usr/local/lib/starling/starpu/lib/pkgconfig \
  "$top/quickstart" install else >"$work/out" 2>"$work/err"
verdict $? "quickstart install else, from another folder and without HOME"
check "a StarPU that all can read is not built again" test ! -e "$prefix/lib/starling"
tried else "export PATH=$prefix/bin:\$PATH PKG_CONFIG_PATH=$prefix/lib/pkgconfig"

make -C "$top/build" uninstall >"$work/out" 2>"$work/err"
verdict $? "make uninstall"
check "no file is left" sh -c 'test -z "$(find "$1" ! -type d)"' sh "$prefix"
cd "$top" && env -u PKG_CONFIG_PATH ./quickstart install >"$work/out" 2>"$work/err" &&
  make -C build uninstall >"$work/out" 2>"$work/err"
verdict $? "quickstart install once more, make uninstall"
files_of /usr/local | diff "$work/before" - >"$work/out"
verdict $? "nothing is left in /usr/local"
check "no folder of ours is left" \
  sh -c '! find /usr/local "$1" -type d -name starling | grep .' sh "$prefix"

# no cache is possible without a home
check "no HOME and no prefix: get-starpu asks for one" sh -c \
  '! env -u HOME -u XDG_CACHE_HOME "$1/tools/get-starpu" 2>err && grep -q "give --prefix" err' \
  sh "$top"
echo "1..$n"
exit $failed
