#!/bin/sh
# Metrics over ranks are those of one process with all data, and the same on all ranks
# (tests/parallel/metrics_ranks.c).
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
program=${METRICS_RANKS:-tests/parallel/metrics_ranks}
shown="err run/err.* run/mpirun"
[ -x "$program" ] || skip_all "no $program: was it built (make check)?"

# over RANKS CASES: the program prints so many cases
over() {
  mpirun_for 200 -np "$1" "$program" >"$work/out" 2>"$work/err"
  code=$?
  while read -r line; do
    case $line in
      "ok - "*) ok "$1 ranks: ${line#ok - }" ;;
      "not ok - "*) not_ok "$1 ranks: ${line#not ok - }" ;;
    esac
  done <"$work/out"
  if [ $code = 0 ] && [ "$(grep -c '^ok - ' "$work/out")" = "$2" ]; then
    ok "$1 ranks: all $2 cases"
  else
    not_ok "$1 ranks: exit code $code: $(head -n 1 "$work/err")"
  fi
}
over 2 7
over 3 7
echo "1..$n"
exit $failed
