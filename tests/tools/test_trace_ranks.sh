#!/bin/sh
# --trace over two ranks: each records and draws its own steps into its own folder, with its
# messages.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
not_has() { ! grep -qE -e "$1" "$2"; }
check() { what=$1; shift; if "$@" >/dev/null 2>&1; then ok "$what"; else not_ok "$what"; fi; }

mpirun_for 200 -np 2 "$lenet" $images --kvstore dist_sync --steps 12 --trace "$work/t" \
  --trace-steps 5-10 >"$work/log" 2>&1
got=$?
if [ $got -ne 0 ] && grep -q 'without FxT' "$work/log"; then
  skip_all "StarPU without FxT: no trace was recorded"
fi
if [ $got -ne 0 ]; then
  not_ok "two traced ranks ended with $got: $(head -n 3 "$work/log")"
  echo "1..$n"
  exit 1
fi
for rank in 0 1; do
  folder=$work/t/rank$rank
  check "rank $rank draws" grep -q '</svg>' "$folder/trace.svg"
  check "the requested steps" grep -q '^window .* steps 5-10:' "$folder/trace.txt"
  check "messages are tasks" grep -qE '^Name: [a-z0-9]+\.(send|receive)' "$folder/tasks.rec"
  check "whose times are known" grep -qE '"message (to|from) [01] [0-9]+ us ' "$folder/paje.trace"
  check "they count" grep -qE '^moves   [0-9.]+ %' "$folder/trace.txt"
  check "and so does their hidden share" not_has '"communication_share": null' "$folder/trace.json"
  check "and are drawn" grep -q '>messages<' "$folder/trace.svg"
  check "no task is lost" test "$(grep -c '^Model: sl_' "$folder/tasks.rec")" = \
    "$(sed -n 's/^ "tasks": \([0-9]*\),$/\1/p' "$folder/trace.json")"
done
check "only rank 0 names the files" test "$(grep -c '^Trace ' "$work/log")" = 1
echo "1..$n"
exit $failed
