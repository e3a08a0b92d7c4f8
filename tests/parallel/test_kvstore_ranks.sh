#!/bin/sh
# The public KVStore on 1 to 4 ranks (tests/parallel/kvstore_ranks.c): sums in the ranks' order to
# the bit, servers, compression, dist_async, and the messages that all ranks get when ranks make
# different calls.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown=out
program=${SL_BUILDDIR:-.}/tests/parallel/kvstore_ranks example=${SL_BUILDDIR:-.}/examples/kvstore
if ! grep -q '^#define SL_HAVE_MPI 1' "${SL_BUILDDIR:-.}/config.h" ||
  ! command -v mpirun >/dev/null; then
  skip_all "no MPI in this build, or no mpirun"
fi
if ! [ -x "$program" ]; then
  skip_all "$program is not built: it comes with the tests that need cmocka"
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=1 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # MPI leaks

# ranks N COMMAND...: its output in $work/out
ranks() { count=$1; shift; timeout -k 5 60 mpirun -np "$count" "$@" >"$work/out" 2>&1; }
bits() { sed -n 's/.*bits //p' "$work/out" | sort -u; }
# says COUNT TEXT: COUNT lines contain TEXT
says() { [ "$(grep -c -e "$2" "$work/out")" = "$1" ]; }
# passes NAME N ARGUMENTS...
passes() { what=$1; shift; check "$what" ranks "$1" "$program" "$2" "$3" "$4" ${5:-}; }

for np in 1 2 4; do
  passes "dist_sync, $np ranks" $np sync dist_sync 0
  eval "bits$np=\$(bits)"
done
passes "dist_sync, 2 ranks once more" 2 sync dist_sync 0
check "the same bits on both ranks and in both runs" test "$(bits)" = "$bits2"
passes "dist_sync, 2 workers, 1 server" 3 sync dist_sync 1
check "the same bits with a server" test "$(bits)" = "$bits2"
passes "dist_sync_device, 2 workers, 2 servers" 4 sync dist_sync_device 2
check "the same bits with two" test "$(bits)" = "$bits2"
check "4 ranks give other bits" test "$bits4" != "$bits2"
passes "Adam after sums, 2 ranks" 2 adam dist_sync 0
passes "Adam after sums, 2 workers, 1 server" 3 adam dist_sync 1
for kind in dist_sync dist_async; do
  passes "two stores of $kind, 2 ranks" 2 two $kind 0
  check "a call of another store is refused" \
    says 2 "mixed: BAD_ARGUMENT: .*KVStore number 2 where rank 0 calls .*KVStore number 1"
  passes "two stores of $kind, 2 workers, 1 server" 3 two $kind 1
done
for kind in dist_sync dist_async; do
  passes "a store of $kind beside trainings, 2 ranks" 2 beside $kind 0
  passes "a store of $kind beside trainings, 2 workers, 1 server" 3 beside $kind 1
done
passes "2bit, 2 ranks" 2 compressed dist_sync 0
passes "2bit, 2 workers, 1 server" 3 compressed dist_sync 1
passes "dist_async, 1 rank" 1 async dist_async 0
passes "dist_async, 3 ranks" 3 async dist_async 0
passes "dist_async_device, 2 workers, 1 server" 3 async dist_async_device 1
passes "dist_async, at most 2 ahead, 3 ranks" 3 async dist_async 0 2
# The fast rank meets the bound and, without one, runs further ahead. Else these would say nothing.
for most in 1 2; do
  passes "dist_async, a fast worker, at most $most ahead" 3 stale dist_async 0 $most
  check "it is held back at $most" says 1 "rank 0: done, at most $most ahead"
done
passes "dist_async, at most 1 ahead, a worker is done early" 3 early dist_async 0 1
passes "and with a server" 3 early dist_async 1 1
passes "dist_async, a fast worker, without a bound" 2 stale dist_async 0
check "it runs further ahead" says 1 "rank 0: done, at most \([3-9]\|[1-9][0-9]\) ahead"

# ---- faults ----
for servers in 0 1; do
  np=$((2 + servers))
  ranks $np "$program" pull dist_sync $servers
  check "$servers servers: a push that does not come is reported, with its key" \
    grep -q "LOST.*waits for key 3 from rank 1" "$work/out"
  check "$servers servers: and the pull fails" says 1 "rank 0: pull: LOST: .*key 3"
  ranks $np "$program" barrier dist_sync $servers
  check "$servers servers: a barrier compares" \
    says 2 "barrier: BAD_ARGUMENT: .*key 3 was pushed 5 times by rank 0, 4 times by rank 1"
  check "$servers servers: then all calls fail" \
    says 2 "rank [01]: pull: LOST: .*key 3 was pushed 5 times"
  ranks $np "$program" close dist_sync $servers
  check "$servers servers: so does a close" \
    says 2 "close: BAD_ARGUMENT: .*key 3 was pushed 5 times by rank 0, 4 times by rank 1"
  passes "$servers servers: another call or count on a rank" $np init dist_sync $servers
  check "$servers servers: is reported to all" \
    says 2 "call: BAD_ARGUMENT: .*calls sl_kvstore_barrier where rank 0 calls sl_kvstore_init"
  check "$servers servers: and so is the count" \
    says 2 "init: BAD_ARGUMENT: .*key 3 with 11 values where rank 0 calls .*key 3 with 10 values"
  check "$servers servers: and so is a key that exists" \
    says 2 "twice: BAD_ARGUMENT: .*key 3 exists already"
done
passes "bad options on one rank" 3 badopen dist_sync 1
check "are reported to all" says 6 "open: BAD_ARGUMENT: .*bigarray_bound is negative"
ranks 2 "$program" apart dist_sync 0
check "ranks that wait in different calls are told which" \
  grep -q "LOST: rank [01] waits in sl_kvstore_\(open\|barrier\) for rank [01], which is idle" \
  "$work/out"
passes "settings that differ in the last digit" 2 digits dist_sync 0
check "are reported, the optimizer's" \
  says 2 "optimizer: BAD_ARGUMENT: .*lr 0.100000009.* where rank 0 calls .*lr 0.1)"
check "and the compression's" \
  says 2 "compression: BAD_ARGUMENT: .*(2bit:0.500000119) where rank 0 calls .*(2bit:0.5)"
passes "a server may be idle for longer than the timeout" 3 idle dist_sync 1
passes "owners of dist_async, too" 2 idle dist_async 0
ranks 2 "$program" sync dist_sync 2
check "a store without workers is refused" grep -q "2 servers of 2 ranks" "$work/out"

# ---- the example ----
last_loss() { sed -n 's/^done: loss //p' "$work/out"; }
converges() { awk -v loss="$(last_loss)" 'BEGIN { exit !(loss != "" && loss < 1e-3) }'; }
for kind in dist_sync dist_async; do
  ranks 2 "$example" --kvstore $kind --steps 100
  check "the example converges with $kind: $(last_loss)" converges
done
ranks 3 "$example" --kvstore dist_async --servers 1 --steps 100
check "and with a server: $(last_loss)" converges
echo "1..$n"
exit $failed
