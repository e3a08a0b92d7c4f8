#!/bin/sh
# The same weights to the bit after 50 steps over schedulers and numbers of workers, with the
# replica count fixed. Every run is compared with the first; a run with another seed must differ, or
# the comparison would prove nothing.
set -u
trainer=${LENET:-examples/lenet}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_HOME=${STARPU_HOME:-$work}
set -- --data digits --steps 50 --batch 26 --replicas 3 --momentum 0.9 --quiet

n=0; failed=0
echo "1..16"
for scheduler in eager lws dmda dmdas prio; do
  for workers in 1 2 4; do
    n=$((n + 1))
    out=$work/$scheduler-$workers.safetensors
    if ! STARPU_SCHED=$scheduler STARPU_NCPU=$workers timeout 120 "$trainer" "$@" --seed 3 \
      --save "$out" >"$work/log" 2>&1; then
      sed 's/^/# /' "$work/log"
      echo "not ok $n - $scheduler with $workers workers does not run"
      failed=1
      continue
    fi
    if cmp -s "$work/eager-1.safetensors" "$out"; then
      echo "ok $n - $scheduler with $workers workers: same weights to the bit"
    else
      echo "not ok $n - $scheduler with $workers workers: weights differ from eager with 1"
      failed=1
    fi
  done
done
timeout 120 "$trainer" "$@" --seed 4 --save "$work/other.safetensors" >"$work/log" 2>&1
if [ -s "$work/other.safetensors" ] &&
  ! cmp -s "$work/eager-1.safetensors" "$work/other.safetensors"; then
  echo "ok 16 - another seed gives other weights"
else
  echo "not ok 16 - another seed gives the same weights, or none"; failed=1
fi
exit $failed
