#!/bin/sh
# Two ranks, seen in StarPU's trace: a layer's exchange begins when its gradient is there, not after
# the whole backward pass. The owner of fc1 (the largest layer) updates it with the other rank's
# gradient before its own gradient of conv1 is computed; and the first layer's forward pass does not
# wait for the other layers' weights. Eager steps, so that each kernel is a task of the trace; captured
# ones have the same exchange.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
tool=$(command -v starpu_fxt_tool || echo "${STARPU_PREFIX:-}/bin/starpu_fxt_tool")
# starpu_fxt_tool is linked with CUDA's own libraries, so it runs without a stand-in that is built
# with sanitizers
with_own_libraries() {
  if [ -n "${SL_STANDIN:-}" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH#*:} "$@"; else "$@"; fi
}
[ -x "$tool" ] || skip_all "no starpu_fxt_tool: StarPU without FxT"

cat >"$work/traced" <<'END'
#!/bin/sh
mkdir "$1/fxt.$OMPI_COMM_WORLD_RANK"
STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=$1/fxt.$OMPI_COMM_WORLD_RANK/ \
  exec "$2" --quiet --kvstore dist_sync --steps 40 --seed 1 --eager
END
chmod +x "$work/traced"
mpirun_for 120 -np 2 "$work/traced" "$work" "$lenet" >"$work/log" 2>&1; got=$?
if [ $got -ne 0 ]; then
  not_ok "two traced ranks ended with $got: $(head -n 3 "$work/log")"
  echo "1..$n"
  exit 1
fi

# tasks RANK: "START MODEL LAYER", one a line, in their order
tasks() {
  (cd "$work/fxt.$1" && with_own_libraries "$tool" -i prof_file_* >/dev/null 2>&1)
  awk '
    /^Name: / { name = $2 }
    /^Model: / { model = $2 }
    /^StartTime: / { start = $2 }
    /^$/ {
      if (start != "" && model ~ /^sl_/) print start, model, name
      name = model = start = ""
    }' "$work/fxt.$1/tasks.rec" | sort -g
}
found=0
for rank in 0 1; do
  tasks $rank >"$work/tasks.$rank"
  # steps of a rank that owns fc1: was its update before the gradient of conv1?
  line=$(awk '$2 == "sl_softmax_xent_gradient" { updated = 0 }
    $2 == "sl_sgd" && $3 == "fc1" { updates++; updated = 1 }
    $2 == "sl_conv2d_backward_weight" && $3 == "conv1" { steps++; early += updated }
    END { if (updates) print early + 0, steps + 0 }' "$work/tasks.$rank")
  [ -n "$line" ] || continue
  found=1
  set -- $line
  if [ "$1" -gt 0 ]; then
    ok "rank $rank updated fc1 before the backward pass was over in $1 of $2 steps"
  else
    not_ok "rank $rank updated fc1 after the backward pass in all $2 steps"
  fi
done
if [ $found = 1 ]; then ok "one rank owns fc1"; else not_ok "no rank updated fc1"; fi
if grep -q sl_send "$work/tasks.0"; then
  ok "messages are tasks of the trace"
else
  not_ok "no message in the trace"
fi
echo "1..$n"
exit $failed
