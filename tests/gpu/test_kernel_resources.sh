#!/bin/sh
# What ptxas says of every kernel of this build, for each architecture: none spills registers, has
# more than 48 KiB of static shared memory, or so many registers that a block of 1024 threads would
# need more than the 65,536 of a multiprocessor; those named ..._tiles have blocks of at most 256
# threads, which may have all. Needs nvcc, not a GPU.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=err
build=${SL_BUILDDIR:-.}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
grep -q '^#define SL_HAVE_CUDA 1' "$build/config.h" || skip_all "a build without CUDA"
[ -z "${SL_STANDIN:-}" ] || skip_all "a stand-in has no ptxas"

# gate FILE: a line for each kernel that breaks a rule; the last line has the number of kernels and
# their largest needs.
gate() {
  awk '
    function judge() {
      if (kernel == "") return
      kernels++
      if (spills > 0) print kernel ": " spills " bytes of spills"
      if (shared > 49152) print kernel ": " shared " bytes of shared memory"
      if (registers > 64 && kernel !~ /_tiles/) print kernel ": " registers " registers"
      if (registers > most) most = registers
      if (shared > largest) largest = shared
      kernel = ""
    }
    # number(TEXT): the number before these words
    function number(text) {
      if (!match($0, "[0-9]+ " text)) return 0
      return substr($0, RSTART, RLENGTH) + 0
    }
    /Compiling entry function/ {
      judge()
      kernel = $0; sub(/.*function ./, "", kernel); gsub(/\047/, "", kernel)
      registers = shared = spills = 0
    }
    /bytes stack frame/ && kernel != "" {
      spills += number("bytes spill stores") + number("bytes spill loads")
    }
    /Used [0-9]+ registers/ && kernel != "" {
      registers = number("registers"); shared = number("bytes smem")
      judge()
    }
    END { judge(); print kernels + 0 " kernels, at most " most + 0 " registers, " largest + 0 " bytes" }
  ' "$1"
}

# sample SPILLS REGISTERS SHARED: one kernel of these needs, as ptxas words it
sample() {
  echo "ptxas info    : Compiling entry function '_Z4testPf' for 'sm_90'"
  echo "ptxas info    : Function properties for _Z4testPf"
  echo "    $1 bytes stack frame, $1 bytes spill stores, $1 bytes spill loads"
  echo "ptxas info    : Used $2 registers, used 1 barriers, $3 bytes smem, 376 bytes cmem[0]"
}
refuses() { sample "$1" "$2" "$3" >"$work/one"; [ "$(gate "$work/one" | wc -l)" = 2 ]; }
check "spills are refused" refuses 8 64 49152
check "65 registers are refused" refuses 0 65 49152
check "more than 48 KiB are refused" refuses 0 64 49153
sample 0 64 49152 >"$work/one"
check "the limits themselves pass" test "$(gate "$work/one")" = \
  "1 kernels, at most 64 registers, 49152 bytes"

missing= source=${SL_SRCDIR:-.}
for file in $(cd "$source" && find core codelets -name '*.cu'); do
  usage=${file%/*}/.libs/$(basename "$file" .cu).o.usage
  [ -e "$build/$usage" ] || missing="$missing $usage"
done
check "every object of nvcc has its kernels' needs$missing" test -z "$missing"
find "$build/core" "$build/codelets" -path '*/.libs/*.o.usage' -exec cat {} + >"$work/all"
gate "$work/all" >"$work/err"
last=$(tail -n 1 "$work/err")
kernels=${last%% *}
check "$last" test "$(wc -l <"$work/err")" = 1
entries=$(grep -c 'Compiling entry function' "$work/all")
architectures=$(grep -o "for 'sm_[0-9]*'" "$work/all" | sort -u | wc -l)
check "all $entries kernels of $architectures architectures were read" \
  test "$kernels" = "$entries" -a "$kernels" -gt 0
echo "1..$n"
exit $failed
