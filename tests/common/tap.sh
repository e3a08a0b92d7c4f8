# TAP for test scripts; they source this file. $n: number of cases; $failed: 1 after a failed case.
n=0 failed=0
# Files (patterns) in $work that not_ok shows the first and the last lines of.
shown=err

ok() { n=$((n + 1)); echo "ok $n - $*"; }
not_ok() {
  n=$((n + 1)); failed=1; echo "not ok $n - $*"
  (cd "$work" && for file in $shown; do
    [ -s "$file" ] && { head -n 8; tail -n 12; } <"$file" | sed "s|$work/||g; s|^|# ${file##*/}: |"
  done)
}
# skip CASE REASON
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
# skip_all REASON: ends the script.
skip_all() { echo "1..0 # SKIP $*"; exit 0; }
# check CASE COMMAND...: the command must succeed.
check() { claim=$1; shift; if "$@"; then ok "$claim"; else not_ok "$claim"; fi; }
# verdict STATUS CASE: the status must be 0.
verdict() { if [ "$1" -eq 0 ]; then ok "$2"; else not_ok "$2"; fi; }
