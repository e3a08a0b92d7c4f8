#!/bin/sh
# Stages on devices of their own, seen in StarPU's trace: each layer's tasks ran where they were
# placed, nowhere else, and no stage waits for the next one. By hand, balanced, and automatically.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="out err"
lm=${LSTM_LM:-examples/lstm_lm} trace=${TRACE:-tools/starling-trace}
tool=$(command -v starpu_fxt_tool || echo "${STARPU_PREFIX:-}/bin/starpu_fxt_tool")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# starpu_fxt_tool is linked with CUDA's own libraries, so it runs without a stand-in that is built
# with sanitizers
with_own_libraries() {
  if [ -n "${SL_STANDIN:-}" ]; then LD_LIBRARY_PATH=${LD_LIBRARY_PATH#*:} "$@"; else "$@"; fi
}
if [ ! -x "$tool" ]; then skip_all "no starpu_fxt_tool: StarPU without FxT"; fi
export STARPU_NCPU=2

# run ARGUMENTS...: a traced training of eight layers, a task for each call (--eager); the output of
# starling-trace is in $work/out.
# Kernels are long enough (about a millisecond) that workers overlap on a busy machine, too.
run() {
  rm -rf "$work/fxt"
  mkdir "$work/fxt"
  STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=$work/fxt/ "$lm" --eager --layers 8 --hidden 160 --embed 160 \
    --words 60 --batch 32 --bptt 20 --steps 12 --microbatches 4 --kvstore device "$@" \
    >"$work/log" 2>"$work/err" || return 1
  (cd "$work/fxt" && with_own_libraries "$tool" -i prof_file_* >"$work/tool.log" 2>&1)
  [ -s "$work/fxt/tasks.rec" ] || { cp "$work/tool.log" "$work/err"; return 1; }
  "$trace" "$work/fxt/tasks.rec" >"$work/out" 2>>"$work/err"
}

# on WORKER LAYERS: exactly these, in any order
on() {
  got=$(sed -n "s/^worker $1 .*%  //p" "$work/out" | tr ' ' '\n' |
    grep -vE '^(loss|stats|norm)$' | sort | tr '\n' ' ')
  want=$(echo "$2" | tr ' ' '\n' | sort | tr '\n' ' ')
  if [ "$got" = "$want" ]; then
    ok "worker $1 ran $2"
  else
    not_ok "worker $1 ran $got, not $want"
  fi
}
# overlaps WHAT PARTS: by the trace's dependences, a step's second part (of PARTS: microbatches, or
# chunks of one) is not behind the first part's pass through the last layer, so two stages can
# compute at once. How much they did is time, which on a busy machine says nothing: it is printed.
overlaps() {
  share=$(sed -n 's/^overlap \([0-9.]*\) %.*/\1/p' "$work/out")
  found=$(awk -v parts="$2" '
    # the k-th smallest job of a list
    function job(list, count, k,   i, j, smaller) {
      for (i = 1; i <= count; i++) {
        smaller = 0
        for (j = 1; j <= count; j++) smaller += list[j] < list[i]
        if (smaller == k - 1) return list[i]
      }
    }
    # does `from` wait for `to`, directly or not?
    function waits(from, to,   stack, depth, list, count, i, seen) {
      stack[depth = 1] = from
      while (depth) {
        count = split(before[stack[depth--]], list, " ")
        for (i = 1; i <= count; i++) {
          if (list[i] == to) return 1
          if (!(list[i] in seen)) { seen[list[i]] = 1; stack[++depth] = list[i] }
        }
      }
      return 0
    }
    /^Name: / { name = $2 }
    /^Model: / { model = $2 }
    /^JobId: / { id = $2 + 0 }
    /^DependsOn: / { depends = substr($0, 12) }
    /^$/ {
      if (id) before[id] = depends
      if (id && model == "sl_lstm_forward" && name == "lstm0") first[++firsts] = id
      if (id && model == "sl_lstm_forward" && name == "lstm7") last[++lasts] = id
      id = 0; name = model = depends = ""
    }
    END {
      begin = job(first, firsts, 5 * parts + 1)
      second = job(first, firsts, 5 * parts + 2)
      end = job(last, lasts, 5 * parts + 1)
      print waits(end, begin), waits(second, end)
    }' "$work/fxt/tasks.rec")
  if [ "$found" = "1 0" ]; then
    ok "$1: stages need not wait for each other; two computed at once for ${share:-?} %"
  else
    not_ok "$1: the last layer waits for the first: ${found% *}, and the reverse: ${found#* }"
  fi
}

# --dropout 0 and one evaluation: the layers are the same in both
if run --placement 'embed,lstm0-2=cpu:1;lstm3-7,decoder=cpu:0'; then
  on 1 "embed lstm0 lstm1 lstm2"
  on 0 "lstm3 lstm4 lstm5 lstm6 lstm7 decoder"
  overlaps "by hand" 4
else
  not_ok "by hand: no trace"
fi
cat >"$work/file" <<'EOF'
lstm1,lstm3,lstm5,lstm7,decoder=cpu:1 # every other one
embed,lstm0,lstm2,lstm4,lstm6=cpu:0
EOF
if run --placement-file "$work/file"; then
  on 0 "embed lstm0 lstm2 lstm4 lstm6"
  on 1 "lstm1 lstm3 lstm5 lstm7 decoder"
  overlaps "from a file" 4
else
  not_ok "from a file: no trace"
fi
if run --stages 2 --chunk 4; then overlaps "balanced" 20; else not_ok "balanced: no trace"; fi
if run --placement auto; then
  if grep -q 'ms predicted' "$work/log"; then
    ok "the plan is printed"
  else
    not_ok "no plan: $(cat "$work/log")"
  fi
  if grep -qE '^Step +[0-9.]+ ms, predicted [0-9.]+ ms' "$work/log"; then
    ok "and the measured step beside it"
  else
    not_ok "no measured step"
  fi
else
  not_ok "automatic: no trace"
fi
echo "1..$n"
exit $failed
