#!/bin/sh
# Messages between ranks by StarPU-MPI or by Starling's own transport (lane): the same weights to
# the bit after 20 steps and the same number of bytes, with several numbers of ranks, servers and
# compressions. Then a rank is killed while StarPU-MPI's requests, which cannot be cancelled, are in
# flight. With dist_async only one worker has a fixed order; two workers must only end.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=out
mlp=${MLP:-examples/mlp} build=${SL_BUILDDIR:-.}
command -v mpirun >/dev/null || skip_all "no mpirun"
grep -q '#define SL_HAVE_MPI 1' "$build/config.h" || skip_all "this build has no MPI"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=1 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0
export OMPI_MCA_odls_base_sigkill_timeout=1 # mpirun waits twice this long after a loss

# train NAME RANKS OPTIONS...: NAME.weights, NAME.sent
train() {
  name=$1 ranks=$2; shift 2
  timeout 60 mpirun -np "$ranks" "$mlp" --steps 20 --batch 100 --hidden 64 --momentum 0.9 \
    --kvstore dist_sync --summary --save "$work/$name.weights" "$@" \
    >"$work/out" 2>&1 </dev/null || return 1
  tr '\r' '\n' <"$work/out" | grep 'a rank and step' >"$work/$name.sent" || test "$ranks" = 1
}
same() { cmp -s "$work/$1.weights" "$work/$2.weights" && cmp -s "$work/$1.sent" "$work/$2.sent"; }

# both WHAT RANKS OPTIONS...
both() {
  what=$1; shift
  if train lane "$@" --exchange lane && train starpu "$@" --exchange starpu; then
    check "$what: the same weights and bytes either way" same lane starpu
  else
    not_ok "$what: does not train"
  fi
}

# ---- wrong exchanges ----
"$mlp" --exchange pigeon --kvstore dist_sync >"$work/out" 2>&1
check "an unknown exchange is bad usage" test $? = 2
"$mlp" --exchange starpu >"$work/out" 2>&1
check "an exchange without ranks is bad usage" test $? = 2
if ! grep -q '#define SL_HAVE_STARPUMPI 1' "$build/config.h"; then
  timeout 60 mpirun -np 2 "$mlp" --steps 2 --kvstore dist_sync --exchange starpu >"$work/out" 2>&1
  check "without StarPU-MPI: refused with a line" grep -q 'this build has no StarPU-MPI' "$work/out"
  check "without StarPU-MPI: auto is the lane" train auto 2 --exchange auto
  echo "ok $((n + 1)) - the rest # SKIP this build has no StarPU-MPI"
  echo "1..$((n + 1))"
  exit $failed
fi

# ---- the same bits ----
both "two ranks, clipped" 2 --clip 1
check "auto trains" train auto 2 --clip 1 --exchange auto
tr '\r' '\n' <"$work/out" | grep '^Messages between ranks: 4 KB by .*, 1 MB by ' |
  sed 's/^/# /' >"$work/choice"
cat "$work/choice"
check "auto reports its choice" test -s "$work/choice"
check "auto: the same weights and bytes" same lane auto
if train other 2 --clip 1 --seed 2 && ! cmp -s "$work/lane.weights" "$work/other.weights"; then
  ok "another seed gives other weights"
else
  not_ok "another seed gives the same weights"
fi
both "three ranks, one a server, big layers spread, two bits" \
  3 --servers 1 --bigarray-bound 10000 --compress 2bit:0.01
both "four ranks" 4
both "dist_async, a worker and a server, compressed" \
  2 --kvstore dist_async --servers 1 --compress 1bit --clip 1
check "dist_async, two workers" \
  train async 2 --kvstore dist_async --max-staleness 2 --exchange starpu

# ---- a rank is lost ----
# A rank's end is kept from mpirun, which would kill the other one, until both have ended.
cat >"$work/rank.sh" <<'END'
#!/bin/sh
"$@" & pid=$!
echo $pid >"$0.$OMPI_COMM_WORLD_RANK.pid"
wait $pid; code=$?
echo $code >"$0.$OMPI_COMM_WORLD_RANK.code"
for _ in $(seq 300); do
  [ -e "$0.0.code" ] && [ -e "$0.1.code" ] && break
  sleep 0.1
done
exit $code
END
chmod +x "$work/rank.sh"
for exchange in lane starpu; do
  rm -f "$work"/rank.sh.* "$work/log.jsonl"
  timeout 60 mpirun -np 2 "$work/rank.sh" "$mlp" --epochs 100000 --batch 16 --hidden 2000 \
    --kvstore dist_sync --quiet --exchange $exchange --timeout 3 --log "$work/log.jsonl" \
    >"$work/out" 2>&1 </dev/null & pid=$!
  while kill -0 $pid 2>/dev/null && [ "$(cat "$work/log.jsonl" 2>/dev/null | wc -l)" -lt 3 ]; do
    sleep 0.05
  done
  kill -KILL "$(cat "$work/rank.sh.1.pid")" 2>/dev/null
  wait $pid
  check "$exchange, a rank killed: the other one ends with code 1" \
    test "$(cat "$work/rank.sh.0.code" 2>/dev/null)" = 1
  check "$exchange, a rank killed: and its line" \
    grep -q '^[a-z-]*: rank 1 (.*) was lost' "$work/out"
done
echo "1..$n"
exit $failed
