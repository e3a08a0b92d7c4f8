# Functions that the tests over ranks share; they source this file. Programs are started by mpirun,
# each rank with its streams, process number and exit code in its own files: $run/out.R, err.R,
# pid.R, code.R. The end of the script ends all processes.
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
shown="run/err.* run/mpirun"
lenet=${LENET:-examples/lenet}
work=$(mktemp -d) || exit 1
run=$work/run
launcher= inside= via= ranks=0
export STARPU_NCPU=1 STARPU_NCUDA=0 STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1
export STARPU_HOME="${STARPU_HOME:-$work}"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# MPI's plugins leak and are unloaded before a sanitizer's report, so no suppression can name them.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

# until_true SECONDS COMMAND...: polls until the command succeeds
until_true() {
  tenths=$(($1 * 10)); shift
  while ! "$@"; do
    tenths=$((tenths - 1)); [ "$tenths" -gt 0 ] || return 1
    sleep 0.1
  done
}

# The process has ended, even if its parent has not waited for it.
has_ended() { ! grep -q '^State:[[:space:]]*[^XZ]' "/proc/$1/status" 2>/dev/null; }

# Ends the ranks that have not written an exit code, and mpirun.
end_all() {
  for file in "$run"/pid.*; do
    [ -s "$file" ] && [ ! -e "$run/code.${file##*.}" ] && kill -KILL "$(cat "$file")" 2>/dev/null
  done
  [ -d "$run" ] && touch "$run/over"
  if [ -n "$launcher" ]; then
    # it ends the processes that it started, too
    until_true 5 has_ended "$launcher" || kill "$launcher"
    wait "$launcher"
  fi
  launcher=
} 2>/dev/null
trap 'end_all; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP PIPE

command -v mpirun >/dev/null || skip_all "no mpirun: nothing over ranks was tested"
grep -q '^#define SL_HAVE_MPI 1' "${SL_BUILDDIR:-.}/config.h" ||
  skip_all "a build without MPI: nothing over ranks was tested"
mpi="--oversubscribe --bind-to none --mca mpi_yield_when_idle 1"
mpi="$mpi --mca btl_base_warn_component_unused 0"
[ "$(id -u)" = 0 ] && mpi="--allow-run-as-root $mpi"
# mpirun_for SECONDS ARGUMENTS...: after a signal it ends its processes
mpirun_for() { seconds=$1; shift; timeout -k 10 "$seconds" mpirun $mpi "$@"; }
mpirun_for 60 -np 2 true >"$work/log" 2>&1 ||
  skip_all "mpirun starts nothing here: $(grep -v '^[- ]*$' "$work/log" | head -n 1)"

# A rank: after its end it stays until all have ended, so that mpirun, which would kill the others,
# does not notice.
cat >"$work/rank" <<'EOF'
#!/bin/sh
run=$1 rank=$OMPI_COMM_WORLD_RANK; shift
sh -c 'echo $$ >"$0"; exec "$@"' "$run/pid.$rank" "$@" >"$run/out.$rank" 2>"$run/err.$rank"
echo $? >"$run/code.new.$rank" && mv "$run/code.new.$rank" "$run/code.$rank"
while [ -d "$run" ] && [ ! -e "$run/over" ]; do sleep 0.1; done
EOF
chmod +x "$work/rank"

# start N COMMAND...: in the background; $launcher is the process itself, no shell around it;
# $inside: a command that runs mpirun, $via: more options for it
start() {
  ranks=$1; shift
  end_all
  rm -rf "$run"; mkdir "$run"
  (exec $inside timeout -k 10 100 mpirun $mpi $via -np "$ranks" "$work/rank" "$run" "$@") \
    >"$run/mpirun" 2>&1 &
  launcher=$!
}

# have_ended RANK...: each has written its exit code
have_ended() { for rank; do [ -e "$run/code.$rank" ] || return 1; done; }
code_of() { cat "$run/code.$1" 2>/dev/null; }

# images FOLDER DIGITS: 3072 images for training, 40 for testing. They are read quickly; digits
# would have to be drawn by each rank. Pixels repeat after 37 bytes: image i is the same as image
# i + 37, and no other. DIGITS are 36 digits, the labels of images 0 to 35. So a network can learn
# them, and a batch of other samples, or in another order, gives another loss.
images() {
  mkdir "$1"
  for set in train:'\014\000':3072 t10k:'\000\050':40; do
    name=${set%%:*} count=${set##*:} bytes=${set#*:}; bytes=${bytes%:*}
    {
      printf "\\000\\000\\010\\003\\000\\000$bytes\\000\\000\\000\\034\\000\\000\\000\\034"
      yes '!A!Z!a!z0A0Z0a0zAzAzZaZaZ9~9~~9~9!~!' | head -c $((784 * count))
    } >"$1/$name-images-idx3-ubyte"
    {
      printf "\\000\\000\\010\\001\\000\\000$bytes"
      yes "$2" | tr '0-9\n' '\000-\011\000' | head -c "$count"
    } >"$1/$name-labels-idx1-ubyte"
  done
}
images "$work/samples" 314159265358979323846264338327950288
images="--data $work/samples"
