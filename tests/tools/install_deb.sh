#!/bin/sh
# The packages of "make deb": installed by dpkg, tried by a user without HOME, purged without a
# rest. .ci/run calls it.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
packages='libstarling0 libstarling-dev starling-tools starling-doc'
[ $# = 0 ] || set -- "$(realpath "$1")" # the folder changes below
. "$top/tests/common/tap.sh"
. "$top/tests/common/throwaway.sh"
shown='out err'
debs=${1:-$top/build/deb}
# neither a StarPU of this machine's users nor an installed Starling can help
rm -rf "${XDG_CACHE_HOME:-$HOME/.cache}/starling" /usr/local/lib/starling
rm -f /usr/local/lib/libstarling*
files_of() { find /usr /etc /var/lib /opt ! -path '/var/lib/dpkg/*' | sort; }
files_of >"$work/before"

for package in $packages; do
  check "$package is there" test -s "$(ls "$debs/${package}"_*.deb)"
done
dpkg -i $(for package in $packages; do ls "$debs/${package}"_*.deb; done) >"$work/out" 2>"$work/err"
verdict $? "dpkg -i"
tried packages :
for file in man/man1/lenet.1.gz man/man1/starling-run.1.gz bash-completion/completions/lenet \
  doc/starling/README.md doc/starling/doc/install.md doc/starling/examples/predict.c; do
  check "$file" test -s "/usr/share/$file"
done
check "an example builds and runs as it is" other \
  "lenet --quiet --steps 20 --save x.json &&
   gcc /usr/share/doc/starling/examples/predict.c \$(pkg-config --cflags --libs starling) -o p &&
   ./p x.json digits"
check "no path of the build is in a file" sh -c '! dpkg -L $1 | xargs grep -lsF "$2"' sh \
  "$packages" "$top"
dpkg --purge $packages >"$work/out" 2>"$work/err"
verdict $? "dpkg --purge"
files_of | diff "$work/before" - >"$work/out"
verdict $? "no file and no folder is left"
echo "1..$n"
exit $failed
