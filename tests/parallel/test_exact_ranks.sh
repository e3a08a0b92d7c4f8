#!/bin/sh
# Ranks against numbers that do not come from the library (tests/parallel/exact_ranks.c): losses and
# weights in double precision, norms of gradients, an evaluation after ranks have met different
# samples, averages of weights after a resume, and the residuals of compression when the number of
# workers changes.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
program=${EXACT_RANKS:-tests/parallel/exact_ranks}
shown="err run/err.* run/mpirun"
[ -x "$program" ] || skip_all "no $program: was it built (make check)?"

# over RANKS CASES ARGUMENTS...: the program prints so many cases
over() {
  count=$1 cases=$2; shift 2
  mpirun_for 200 -np "$count" "$program" "$@" >"$work/out" 2>"$work/err"
  code=$?
  while read -r line; do
    case $line in
      "ok - "*) ok "${line#ok - }" ;;
      "not ok - "*) not_ok "${line#not ok - }" ;;
    esac
  done <"$work/out"
  if [ $code = 0 ] && [ "$(grep -c '^ok - ' "$work/out")" = "$cases" ]; then
    ok "$count ranks, $1: all $cases cases"
  else
    not_ok "$count ranks, $1: exit code $code: $(head -n 1 "$work/err")"
  fi
}
over 2 24 losses
over 3 19 losses
over 2 12 fields
over 3 12 fields
over 2 19 gradients
over 3 19 gradients
over 2 3 statistics
over 3 3 statistics
over 2 5 averages "$work/averages"
over 2 1 save "$work/two"
for ranks in 1 2 3; do over $ranks 3 load "$work/two" "$work/again"; done
echo "1..$n"
exit $failed
