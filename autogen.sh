#!/bin/sh
# Makes configure from configure.ac; needs autoconf, automake, libtool and pkg-config.
set -e
cd "$(dirname "$0")"
build-aux/list-sources
autoreconf --install --force
# At its end configure removes files named core, and cannot go on if that is a folder, as ours is.
sed 's/rm -f core \*\.core core\.conftest\.\* &&/:; /' configure >configure.tmp
cat configure.tmp >configure
rm configure.tmp
