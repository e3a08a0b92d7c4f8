#!/bin/sh
# What surrounds a run: a HOME that cannot be written to, closed and full standard streams, signals,
# a second run in the same folder of checkpoints, modes of files, small limits of memory and stack.
# Each bad case ends in one clear line, and never by a signal; nothing that a run saved is lost.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
mlp=$(realpath "${MLP:-examples/mlp}")
lm=$(realpath "${LSTM_LM:-examples/lstm_lm}")
predict=$(realpath "${PREDICT_EXAMPLE:-examples/predict}")
tuner=$(realpath "${TUNE:-tools/starling-tune}")
sanitized=$(grep -c '^#define SL_SANITIZE 1' config.h)
work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
home=${STARPU_HOME:-$work}
export STARPU_HOME="$home"
short="--steps 3 --quiet --hidden 8"
cd "$work" || exit 1

# ended CODE CASE COMMAND...: exit code CODE; the output goes to $work/out and $work/err
ended() {
  code=$1 case=$2; shift 2
  "$@" >out 2>err; got=$?
  verdict "$((got != code))" "$case: exit code $got"
}
told() { check "and says '$1'" grep -q -e "$1" err; }
silent() { check "without a message" test ! -s err; }

# ---- StarPU's folder ----
mkdir temporary
without_home() { timeout 60 env -u STARPU_HOME -u XDG_CACHE_HOME TMPDIR="$work/temporary" "$@"; }
ended 0 "no HOME" without_home env -u HOME "$mlp" $short
told "is set, which say where StarPU.s performance models belong; they are kept for this run only"
ended 0 "a HOME that cannot be written" without_home env HOME=/proc/none "$mlp" $short
told "/proc/none/.starpu (HOME) cannot hold"
check "the private folder is removed" test -z "$(ls -A temporary)"
ended 1 "a program that ends without sl_close" without_home env -u HOME "$predict" none.json digits
check "its private folder is removed" test -z "$(ls -A temporary)"
# begun: a run that goes on, with a private folder and $job
begun() {
  (exec env -u STARPU_HOME -u XDG_CACHE_HOME -u HOME TMPDIR="$work/temporary" "$mlp" --hidden 8 \
    --steps 1000000 --log running.jsonl --quiet 2>err) & job=$!
  for _ in $(seq 1000); do grep -q '"step"' running.jsonl 2>/dev/null && break; sleep 0.05; done
}
begun
ended 0 "another run beside it" without_home env -u HOME "$mlp" $short
check "the private folder of a run is left alone" test "$(ls temporary | wc -l)" = 1
kill -KILL $job; wait $job 2>/dev/null
check "a killed run leaves its folder" test "$(ls temporary | wc -l)" = 1
ended 0 "the next run" without_home env -u HOME "$mlp" $short
check "removes it" test -z "$(ls -A temporary)"
ended 1 "a STARPU_HOME that cannot be written" timeout 60 env STARPU_HOME=/proc/none "$mlp" $short
told "STARPU_HOME) cannot hold StarPU's performance models: .*; name another folder"
ended 1 "neither HOME nor TMPDIR" without_home env -u HOME TMPDIR=/proc/none "$mlp" $short
told "name a folder by STARPU_HOME"
mkdir theirs
if chown 12345 theirs 2>/dev/null; then
  mkdir theirs/.starpu && chown 12345 theirs/.starpu
  ended 0 "a HOME with another user's .starpu" without_home env HOME="$work/theirs" "$mlp" $short
  told "belongs to another user"
  check "nothing was written there" test -z "$(ls -A theirs/.starpu)"
else
  skip "a HOME with another user's .starpu" "only root makes files of other users"
fi
mkdir own
ended 0 "a HOME that is written for the first time" without_home env HOME="$work/own" "$mlp" $short
silent
check "its folder is private" test "$(stat -c %a own/.starpu)" = 700

mkdir disk
if unshare -m mount -t tmpfs -o size=1m none disk 2>/dev/null; then
  cat >on_disk <<'EOF'
mount -t tmpfs -o size=1m none disk && head -c 2000000 /dev/zero >disk/zeros 2>/dev/null
"$@"; code=$?
[ -z "$(ls -d disk/starling-* 2>/dev/null)" ] || code=99 # the private folder
rm disk/zeros
exit $code
EOF
  ended 0 "a HOME on a full disk" without_home unshare -m sh on_disk \
    env HOME="$work/disk" "$mlp" $short
  told "/disk/.starpu/sampling (HOME) cannot hold StarPU's performance models: No space left"
  ended 1 "a HOME and a TMPDIR on a full disk" without_home unshare -m sh on_disk \
    env HOME="$work/disk" TMPDIR="$work/disk" "$mlp" $short
  told "cannot be made in $work/disk either: No space left"
else
  skip "a HOME on a full disk" "no mount namespace can be made here"
fi

# StarPU aborts at these files if they are damaged.
bus=own/.starpu/sampling/bus
# spoilt CASE FILE TEXT: once the file has this text
spoilt() {
  printf "$3" >"$bus/$2"
  ended 0 "$1" without_home env HOME="$work/own" STARPU_HOSTNAME=here "$mlp" $short
}
without_home env HOME="$work/own" STARPU_HOSTNAME=here "$mlp" $short >out 2>err
for text in '' '# Current' '# Current configuration\n'; do
  rm -f $bus/here.config.damaged
  spoilt "$(printf "$text" | wc -c) bytes of the buses' configuration" here.config "$text"
  told "here.config: this performance model was damaged .*anew; .* here.config.damaged"
  check "the old file is kept" test -e $bus/here.config.damaged
done
for text in '' '# G' '# GPU\tNUMA0\t' '# GPU\tNUMA0\t\n0\t0\t\n1\t' '# GPU\tNUMA0\t\n0\t\n'; do
  spoilt "$(printf "$text" | wc -c) bytes of the buses' affinity" here.affinity "$text"
  told "here.affinity: this performance model was damaged and is measured anew"
done
spoilt "a whole affinity of a GPU" here.affinity '# GPU\tNUMA0\t\n0\t0\t\n'
silent

# ---- StarPU's numbers ----
for setting in STARPU_NCPU=x STARPU_NCPU=-3 STARPU_NCPU=-1 STARPU_NCPU=2.5 STARPU_NCPUS=two \
  STARPU_NCUDA=none STARPU_RESERVE_NCPU=5000000000 STARPU_SILENT=yes; do
  ended 2 "$setting" timeout 60 env "$setting" "$mlp" $short
  told "${setting%=*} is '${setting#*=}'; it must be a whole number"
done
ended 0 "STARPU_NCPU=+1" timeout 60 env STARPU_NCPU=+1 "$mlp" $short

# ---- closed and full streams ----
for streams in '<&-' '>&-' '2>&-' '<&- >&- 2>&-'; do
  rm -f run.jsonl
  sh -c "exec \"\$@\" $streams" sh "$mlp" --steps 30 --hidden 8 --log run.jsonl >out 2>err
  verdict $? "run with $streams"
  check "the log has JSON lines alone" sh -c '! grep -v "^{.*}$" run.jsonl && test -s run.jsonl'
done
if [ -e /dev/full ]; then
  "$mlp" --steps 30 --hidden 8 --save full.safetensors --checkpoint full >/dev/full 2>err
  verdict $? "a full standard output"
  told "lines of the standard output are lost"
  check "the weights and the checkpoint are there" test -s full.safetensors -a -s full/manifest.json
fi
{ "$mlp" --steps 30 --hidden 8 --epochs 1 --save pipe.safetensors 2>err; echo $? >code; } | true
check "a closed pipe behind it: exit code 0" test "$(cat code)" = 0
check "the weights are there" test -s pipe.safetensors

# ---- SIGHUP ----
"$mlp" --hidden 8 --epochs 1000 --checkpoint hup --checkpoint-every 20 >out 2>err &
job=$!
for _ in $(seq 1000); do ls hup/checkpoint-* >/dev/null 2>&1 && break; sleep 0.05; done
kill -HUP $job
wait $job
verdict $? "SIGHUP ends the run with a checkpoint"
check "which it names" grep -q "^Stopped .*SIGHUP" out
check "and leaves no lock" test ! -e hup/lock
(trap '' HUP; exec "$mlp" --hidden 8 --steps 3000 --quiet >out 2>err) &
job=$!
sleep 0.3
kill -HUP $job
wait $job
verdict $? "under nohup SIGHUP has no effect"

# ---- two runs in one folder ----
"$mlp" --hidden 8 --epochs 1000 --checkpoint shared --checkpoint-every 20 >first.out 2>first.err &
job=$!
for _ in $(seq 1000); do ls shared/checkpoint-* >/dev/null 2>&1 && break; sleep 0.05; done
ended 2 "a second run in the folder, --resume" timeout 60 "$mlp" $short --checkpoint shared --resume
told "another run has this folder (host .*, process $job, since"
SLURM_RESTART_COUNT=1 timeout 60 "$mlp" $short --checkpoint shared --resume >out 2>err &
requeued=$!
sleep 4
check "a job that Slurm has requeued waits for its predecessor" kill -0 $requeued
kill -KILL $job
wait $job 2>/dev/null
wait $requeued
verdict $? "and goes on once that has been killed"
check "the lock is removed" test ! -e shared/lock
ln -s "$work/elsewhere" shared/lock
ended 1 "a link in the lock's place" timeout 60 "$mlp" $short --checkpoint shared --resume
check "is not followed" test ! -e elsewhere

# ---- modes of files ----
(umask 027; "$mlp" $short --save kept.safetensors --log kept.jsonl --checkpoint kept) >out 2>err
modes=$(stat -c %a kept.safetensors kept.jsonl kept/manifest.json | sort -u)
check "new files have the umask's mode" test "$modes" = 640
chmod 600 kept.safetensors kept/manifest.json
"$mlp" --steps 6 --quiet --hidden 8 --save kept.safetensors --checkpoint kept --resume >out 2>err
check "replaced files keep theirs" test "$(stat -c %a kept.safetensors kept/manifest.json |
  sort -u)" = 600

# ---- small limits ----
# least_room COMMAND...: KiB with which it succeeds
least_room() {
  kilobytes=150000
  while [ $kilobytes -lt 8000000 ]; do
    (ulimit -v $kilobytes && "$@") >/dev/null 2>&1 && { echo $kilobytes; return; }
    kilobytes=$((kilobytes + 120000))
  done
}
# A text of 100 million tokens where there is room for a short one only.
long_text() {
  model="--data grammar --words 50 --hidden 8 --embed 8 --layers 1"
  ended 0 "a model of texts" "$lm" $model --steps 1 --quiet --save lm.safetensors
  sample="timeout 60 $lm $model --load lm.safetensors --sample"
  room=$(($(least_room $sample 1) + 60000)) # what a run needs differs a little
  (ulimit -v "$room" && $sample 100000000) >out 2>err; got=$?
  check "--sample 100000000 in $room KiB: exit code $got" test $got = 1
  told "no memory\|ulimit -v" # the latter where it differs by more than that
}
small_limits() {
  for kilobytes in 100000 400000; do
    (ulimit -v $kilobytes && timeout 60 "$mlp" $short) >out 2>err; got=$?
    # 127: the loader has no room for the libraries, and says so
    check "ulimit -v $kilobytes: exit code $got, no signal" test $got = 1 -o $got = 0 -o $got = 127
    [ $got = 0 ] || check "with a message" test -s err
  done
  # as much room as the loader needs for all libraries, and at most 120 MB more: there may be none
  # for the digits
  room=$(least_room "$mlp" --version)
  if [ -n "$room" ]; then
    (ulimit -v "$room" && timeout 60 "$mlp" $short) >out 2>err; got=$?
    check "ulimit -v $room, all libraries are loaded: exit code $got" test $got = 1
    told "ulimit -v\|no memory for"
  fi
  # without libtool's script, whose shell needs more stack than the program
  program=$mlp
  if [ -x "${mlp%/*}/.libs/${mlp##*/}" ]; then
    program=${mlp%/*}/.libs/${mlp##*/}
    libraries=$(cd "${mlp%/*}/.." && pwd)/.libs
    libraries=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
  for kilobytes in 128 256 600 1024; do
    # The loader, too, needs some of the stack: how much depends on the processor's registers.
    small_stack --version || { skip "ulimit -s $kilobytes" "no program starts"; continue; }
    small_stack $short; got=$?
    check "ulimit -s $kilobytes: exit code $got, no signal" test $got = 1 -o $got = 0
    [ $got = 0 ] || told "ulimit -s"
  done
}
small_stack() {
  (ulimit -s $kilobytes && exec env LD_LIBRARY_PATH="${libraries-}" timeout 60 "$program" "$@") \
    >out 2>err
}
if [ "$sanitized" = 0 ]; then
  small_limits
  long_text
else
  skip "small limits" "a sanitizer's memory exceeds them"
fi

# ---- a long TMPDIR ----
long=$work/a-folder-with-a-name-of-more-than-forty-characters/and-another-one-in-it
mkdir -p "$long"
TMPDIR=$long timeout 100 "$tuner" --seconds 5 --trial-seconds 0.2 -- "$mlp" $short >out 2>err
verdict $? "starling-tune in a long TMPDIR"

echo "1..$n"
exit $failed
