#!/bin/bash
# Chaos: trainings over two to four ranks under starling-run, disturbed at random: ranks are killed
# or paused, the link between two machines is cut, the checkpoints' disk is full, the wall clock
# jumps. Each run must come to its end, with the weights of an undisturbed run, to the bit.
#
#   make chaos CHAOS_MINUTES=2 CHAOS_SEED=1
#
# Full disks and cut links need root (a small tmpfs, network namespaces); without it they are left
# out, aloud. The clock jumps in the ranks alone (clock_step.c).
set -u
here=$(cd "$(dirname "$0")" && pwd)
launcher=$here/../../tools/starling-run
mlp=$(realpath "${MLP:-examples/mlp}")
minutes=${CHAOS_MINUTES:-2} seed=${CHAOS_SEED:-$(date +%N | sed 's/^0*//')}
work=$(mktemp -d) || exit 1
disk=$work/disk
. "$here/../common/machines.sh"
clean() {
  end_ranks
  umount "$disk" 2>/dev/null
  remove_machines
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=1 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export OMPI_MCA_odls_base_sigkill_timeout=1 RANKS=$work/ranks
unset SLURM_JOB_NUM_NODES
steps=200

skip_all() { echo "SKIP: chaos: $*"; exit 0; }
command -v mpirun >/dev/null || skip_all "no mpirun"
command -v pgrep >/dev/null || skip_all "no pgrep"
grep -q '^#define SL_HAVE_MPI 1' config.h 2>/dev/null || skip_all "built without MPI"

# draw MOST: the next number, from 0 to MOST
draw() {
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  drawn=$(((seed >> 8) % ($1 + 1)))
}
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
end_ranks() { for file in "$RANKS"/[0-9]*; do kill -9 "$(cat "$file")"; done 2>/dev/null; }

# ---- what can be disturbed here ----
kinds="kill pause"
mkdir "$disk" "$RANKS"
if mount -t tmpfs -o size=24m none "$disk" 2>/dev/null; then
  kinds="$kinds disk"
else
  echo "SKIP: full disks: no tmpfs can be mounted here"
fi
if ${CC:-cc} -shared -fPIC -O1 -o "$work/clock_step.so" "$here/clock_step.c" -ldl; then
  kinds="$kinds clock"
else
  echo "SKIP: clock steps: clock_step.c was not compiled"
fi
has_link=no
if make_machines "$work" 10.99.1 2>"$work/link"; then
  has_link=yes
else
  echo "SKIP: cut links: no network namespace: $(head -n 1 "$work/link")"
fi
# a rank writes its process id before it starts
cat >"$work/rank" <<'END'
#!/bin/sh
echo $$ >"$RANKS/new.$OMPI_COMM_WORLD_RANK"
mv "$RANKS/new.$OMPI_COMM_WORLD_RANK" "$RANKS/$OMPI_COMM_WORLD_RANK"
[ -z "${CHAOS_PRELOAD:-}" ] || export LD_PRELOAD="$CHAOS_PRELOAD"
exec "$@"
END
chmod +x "$work/rank"

# ---- a run ----
# train RANKS LINK FOLDER WEIGHTS: LINK yes: over two namespaces
train() {
  local inside='' more=''
  if [ "$2" = yes ]; then
    inside=$on_first
    more="$over_machines --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --map-by node"
  fi
  $inside timeout -k 20 300 "$launcher" -np "$1" --max-restarts 99 ${more:+"--mpirun=$more"} -- \
    "$work/rank" "$mlp" --kvstore dist_sync --hidden 128 --batch 50 --steps $steps --momentum 0.9 \
    --timeout 5 --checkpoint "$3" --checkpoint-every 7 --keep 3 --save "$4" \
    --report-failure "$work/report" >"$work/out" 2>"$work/err"
}
is_running() { kill -0 "$job" 2>/dev/null; }

# The disturbances. Each prints what it did.
a_rank() {
  draw $((ranks - 1))
  victim=$(cat "$RANKS/$drawn" 2>/dev/null)
  [ -n "$victim" ] && kill -0 "$victim" 2>/dev/null
}
do_kill() { a_rank && kill -9 "$victim" && printf ' kill:%s' "$drawn"; }
do_pause() {
  a_rank || return
  local rank=$drawn
  draw 4000
  kill -STOP "$victim" 2>/dev/null || return
  pause "$drawn"
  kill -CONT "$victim" 2>/dev/null
  printf ' pause:%s,%sms' "$rank" "$drawn"
}
do_disk() {
  draw 2500
  cat /dev/zero >"$disk/full" 2>/dev/null
  pause "$drawn"
  rm -f "$disk/full"
  printf ' disk:%sms' "$drawn"
}
do_clock() {
  draw 7200
  echo $((drawn - 3600)) >"$work/clock"
  printf ' clock:%ss' $((drawn - 3600))
}
do_link() {
  draw 7000
  cut_link
  pause "$drawn"
  mend_link
  printf ' link:%sms' "$drawn"
}

# ---- undisturbed runs, for comparison ----
failed=0 runs=0 restarts=0
declare -A done_by
for ranks in 2 3 4; do
  if ! train $ranks no "$work/whole.$ranks" "$work/whole.$ranks.safetensors"; then
    echo "not ok - chaos: the undisturbed run of $ranks ranks failed"
    tail -n 5 "$work/err"
    exit 1
  fi
done

# ---- disturbed runs ----
echo "chaos: seed $seed, $minutes minutes; kinds: $kinds$([ $has_link = no ] || echo ' link')"
folder=$work/cut
case $kinds in *disk*) folder=$disk/cut ;; esac
case $kinds in *clock*) export CHAOS_PRELOAD=$work/clock_step.so CHAOS_CLOCK=$work/clock ;; esac
until=$((SECONDS + minutes * 60))
while [ $SECONDS -lt $until ]; do
  began=$seed
  rm -rf "$folder" "$work/cut.safetensors" "$work/report"* "$RANKS"/*
  echo 0 >"$work/clock"
  draw 2; ranks=$((drawn + 2))
  draw 2; link=no; [ $has_link = no ] || [ $drawn -gt 0 ] || link=yes
  of_run=$kinds; [ $link = no ] || of_run="$kinds link link"
  draw 3; events=$((drawn + 1))
  train $ranks $link "$folder" "$work/cut.safetensors" & job=$!
  printf '# run %d (seed %d): %d ranks%s:' $((runs + 1)) "$began" $ranks \
    "$([ $link = no ] || echo ' on two machines')"
  for _ in $(seq $events); do
    draw 1500; pause $((drawn + 200))
    is_running || break
    draw $(($(echo "$of_run" | wc -w) - 1))
    kind=$(echo "$of_run" | cut -d ' ' -f $((drawn + 1)))
    do_"$kind" && done_by[$kind]=$((${done_by[$kind]:-0} + 1))
  done
  wait $job; code=$?
  runs=$((runs + 1))
  again=$(grep -c '; restart' "$work/err")
  restarts=$((restarts + again))
  echo " -> $again restarts, code $code"
  if [ $code != 0 ] || ! cmp -s "$work/whole.$ranks.safetensors" "$work/cut.safetensors" ||
    grep -q 'signal 11\|signal 6\|signal 8\|signal 7' "$work/err"; then
    failed=1
    echo "not ok - chaos: the run of seed $began: code $code, or other weights than undisturbed"
    tail -n 25 "$work/err" | sed 's/^/# /'
    [ $code -lt 124 ] || end_ranks
  fi
done
summary="$runs runs, $restarts restarts;"
for kind in "${!done_by[@]}"; do summary="$summary $kind ${done_by[$kind]}"; done
[ $failed = 1 ] || echo "ok - chaos: $summary; all weights as undisturbed"
[ $failed = 0 ] || echo "chaos: $summary"
exit $failed
