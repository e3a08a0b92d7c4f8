#!/bin/sh
# Several memory nodes without a GPU: StarPU's TCP/IP master-slave processes run the same training;
# the weights must be the same to the bit as in one process. Prints TAP-like lines; exits 77 if
# StarPU lacks the driver. usage: check-nodes.sh NODES_TRAIN [STARPU_TCPIPEXEC]
set -u
program=${1:?usage: check-nodes.sh NODES_TRAIN [STARPU_TCPIPEXEC]}
launcher=${2:-$(command -v starpu_tcpipexec || true)}
if [ -z "$launcher" ] || [ ! -x "$launcher" ]; then
  echo "SKIP: several memory nodes: this StarPU has no TCP/IP master-slave driver" \
    "(starpu_tcpipexec)"
  exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_NCPU=1 STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1
export STARPU_HOME=${STARPU_HOME:-$work} STARPU_DISABLE_ASYNCHRONOUS_TCPIP_MS_COPY=1
failed=0

# run NAME COMMAND...: a training whose output is kept, and shown if it fails
run() {
  name=$1; shift
  if timeout 240 "$@" >"$work/$name.log" 2>&1; then return 0; fi
  echo "not ok - $name ended with status $?"
  tail -n 20 "$work/$name.log"
  failed=$((failed + 1))
  return 1
}

run alone "$program" "$work/alone" || exit 1
for slaves in 1 2; do
  for scheduler in dmda eager; do
    name=$slaves-$scheduler
    STARPU_SCHED=$scheduler run "$name" \
      "$launcher" -np "$slaves" -nobind -ncpus 1 "$program" "$work/$name" || continue
    elsewhere=$(sed -n 's/^tasks run by other processes: //p' "$work/$name.log")
    if [ "${elsewhere:-0}" -lt 50 ]; then
      echo "not ok - $slaves slaves, $scheduler: only ${elsewhere:-0} tasks ran in other processes"
      failed=$((failed + 1))
      continue
    fi
    for model in lenet residual language; do
      what="$model, $slaves slaves, $scheduler"
      if cmp -s "$work/alone-$model.safetensors" "$work/$name-$model.safetensors"; then
        echo "ok - $what: same weights to the bit ($elsewhere tasks ran elsewhere)"
      else
        echo "not ok - $what: weights differ from those of one process"
        failed=$((failed + 1))
      fi
    done
  done
done

# layers pinned: stages x replicas take the nodes' workers in turn
for slaves in 1 2; do
  name=$slaves-pinned
  run "$name" "$launcher" -np "$slaves" -nobind -ncpus 1 "$program" "$work/$name" $((slaves + 1)) ||
    continue
  elsewhere=$(sed -n 's/^tasks run by other processes: //p' "$work/$name.log")
  for model in lenet residual language; do
    what="$model, $((slaves + 1)) stages pinned to as many nodes"
    if [ "${elsewhere:-0}" -ge 50 ] &&
      cmp -s "$work/alone-$model.safetensors" "$work/$name-$model.safetensors"; then
      echo "ok - $what: same weights to the bit ($elsewhere tasks ran elsewhere)"
    else
      echo "not ok - $what: weights differ, or too few tasks ran there (${elsewhere:-0})"
      failed=$((failed + 1))
    fi
  done
done
exit $((failed > 0))
