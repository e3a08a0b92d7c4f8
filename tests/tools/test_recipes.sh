#!/bin/sh
# The recipes of packaging/ and debian/, as far as they can be checked without Spack and Apptainer:
# they have the version and the options that configure has, and name files that exist.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
top=$(cd "${SL_SRCDIR:-.}" && pwd)
shown='out err'
version=$(sed -n 's/^AC_INIT(\[starling\], \[\(.*\)\])$/\1/p' "$top/configure.ac")

# ---- Debian ----
check "debian/changelog has version $version" \
  sh -c 'head -n 1 "$1" | grep -q "^starling ($2) "' sh "$top/debian/changelog" "$version"
sed -n 's/^Package: //p' "$top/debian/control" >"$work/packages"
check "each package has its files" sh -c 'while read -r name; do
  test -s "$1/debian/$name.install" || exit 1; done <"$2"' sh "$top" "$work/packages"
major=$(sed -n 's/.*-version-info \([0-9]*\):[0-9]*:\([0-9]*\).*/\1 \2/p' "$top/Makefile.am" |
  awk '{ print $1 - $2 }')
check "the library's package has its soname's number" grep -qx "libstarling$major" "$work/packages"

# ---- Apptainer ----
definition=$top/packaging/apptainer/starling.def
check "starling.def names the tarball of version $version" \
  grep -q "build/starling-$version.tar.gz " "$definition"
for section in post test runscript; do
  sed -n "/^%$section/,/^%/p" "$definition" | sed '/^%/d' >"$work/$section"
  check "%$section is a shell script" sh -c 'test -s "$1" && sh -n "$1"' sh "$work/$section"
done

# ---- Spack ----
if ! python3 -c '' 2>/dev/null; then
  skip "Spack's recipe" "no python3"
elif [ ! -x "$top/configure" ]; then
  skip "Spack's recipe" "no configure"
else
  "$top/configure" --help >"$work/help"
  cat >"$work/spack_stub.py" <<'END'
# Runs the recipe with stand-ins for Spack's directives, and prints the options it gives configure.
import sys, types

variants, versions = {}, []
names = types.ModuleType('spack.package')
for word in 'depends_on conflicts license'.split():
    setattr(names, word, lambda *a, **k: None)
names.version = lambda number, **k: versions.append(number)
names.variant = lambda name, default, description: variants.__setitem__(name, default)


class Base:
    def with_or_without(self, name):
        assert name in variants, name
        return [('--with-' if self.spec.satisfies('+' + name) else '--without-') + name]


class Spec:
    def __init__(self, on):
        self.on = on
        cuda_arch = types.SimpleNamespace(value=('80', '90'))
        self.variants = {'cuda_arch': cuda_arch}

    def satisfies(self, text):
        return text[1:] in self.on

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix='/spack/' + name)


for path, word in ('autotools', 'AutotoolsPackage'), ('cuda', 'CudaPackage'):
    module = types.ModuleType(path)
    setattr(module, word, type(word, (Base,) if path == 'autotools' else (), {}))
    sys.modules['spack_repo.builtin.build_systems.' + path] = module
for parent in 'spack spack_repo spack_repo.builtin spack_repo.builtin.build_systems'.split():
    sys.modules[parent] = types.ModuleType(parent)
sys.modules['spack.package'] = names
scope = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), scope)
assert versions == [sys.argv[2]], versions
for on in (), variants, list(variants) + ['cuda']:
    package = scope['Starling']()
    package.spec = Spec(on)
    for option in package.configure_args():
        print(option.split('=')[0].replace('--without-', '--with-'))
END
  python3 "$work/spack_stub.py" "$top/packaging/spack/package.py" "$version" \
    >"$work/options" 2>"$work/err"
  verdict $? "Spack's recipe has version $version"
  sort -u "$work/options" | while read -r option; do
    grep -qE -- "$option([] =[]|\$)" "$work/help" || echo "$option"
  done >"$work/out"
  check "configure knows its options" test -s "$work/options" -a ! -s "$work/out"
fi
echo "1..$n"
exit $failed
