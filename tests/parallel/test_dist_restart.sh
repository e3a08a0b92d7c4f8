#!/bin/bash
# Distributed runs whose ranks are killed at all moments, under starling-run: it starts them again
# from the last checkpoint, and they end with the weights, the log and the checkpoints of an
# undisturbed run. Then ends by a signal, fewer ranks, and the arguments that starling-run refuses.
# SL_KILLS: kills of each kind of rank (default 6); SL_KILL_SECONDS: no kill begins later than that
# (default 15). On two idle cores a kill costs about 1.5 s.
set -u
here=$(cd "$(dirname "$0")" && pwd)
launcher=${STARLING_RUN:-$here/../../tools/starling-run}
mlp=$(realpath "${MLP:-examples/mlp}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=1 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0" # MPI leaks; other tests look for our leaks
export OMPI_MCA_odls_base_sigkill_timeout=1
unset SLURM_JOB_NUM_NODES
n=0 failed=0

# Lanes run at the same time: each has its own folder, which gets its lines of TAP.
say_ok() { echo "ok - $*" >>"$lane/tap"; }
say_not_ok() {
  echo "not ok - $*" >>"$lane/tap"
  sed "s|$lane/||g; s/^/# /" "$lane/err" | tail -n 12 >>"$lane/tap"
}
check() { what=$1; shift; if "$@"; then say_ok "$what"; else say_not_ok "$what"; fi; }
begin_lane() { lane=$work/$1; mkdir "$lane"; }
end_lanes() { # number their lines
  wait
  for name in "$@"; do
    while IFS= read -r line; do
      case $line in
        "ok - "*) n=$((n + 1)); echo "ok $n - ${line#ok - }" ;;
        "not ok - "*) n=$((n + 1)); failed=1; echo "not ok $n - ${line#not ok - }" ;;
        *) echo "$line" ;;
      esac
    done <"$work/$name/tap"
  done
}

# ---- the command lines that starling-run makes: mpirun is a stand-in ----

# stand_in VERSION: an mpirun that prints VERSION, and ends with the next code of $CODES
stand_in() {
  printf '#!/bin/sh\nif [ "$1" = --version ]; then echo "%s"; exit 0; fi\n' "$1" >"$lane/mpirun"
  cat >>"$lane/mpirun" <<'END'
echo "mpirun $*" >>"$CALLS"
read -r code rest <"$CODES"; echo "$rest" >"$CODES"
if [ "$code" = hang ]; then # its rank ends, it does not
  sleep 2 & wait
  exec sleep 1000
fi
exit "$code"
END
  chmod +x "$lane/mpirun"
}
# launch CODES CODE WHAT ARGUMENTS...: mpirun ends with one of CODES after the other, starling-run
# with CODE
launch() {
  codes=$1 want=$2 what=$3; shift 3
  echo "$codes" >"$lane/codes"; : >"$lane/calls"
  MPIRUN=$lane/mpirun CODES=$lane/codes CALLS=$lane/calls "$launcher" "$@" \
    >"$lane/out" 2>"$lane/err"
  got=$?
  check "$what" test "$got" = "$want"
}
calls() { [ "$(grep -c . "$lane/calls")" = "$1" ]; }
told() { grep -qe "$1" "$lane/err"; }
called() { grep -qe "$1" "$lane/calls"; }

begin_lane words
stand_in "mpirun (Open MPI) 4.1.4"
launch "0" 0 "done: code 0" -np 1 -- sh train --checkpoint d
check "started once, without --resume" calls 1
check "as it was given" called "-np 1 sh train --checkpoint d\$"
launch "137 0" 0 "a killed rank: restarted" -np 1 -- sh --checkpoint=d
check "with --resume" called "--checkpoint=d --resume\$"
launch "1 1 0" 0 "words behind a program's --" -np 1 -- sh -- sh --checkpoint d -- net.json -- x
check "stay behind --resume" test 2 = \
  "$(grep -c -e 'sh -- sh --checkpoint d --resume -- net.json -- x$' "$lane/calls")"
launch "1 1 0" 0 "a program behind another's --" -np 1 -- env -- sh --checkpoint d
check "gets --resume once" test "$(grep -c -e 'env -- sh --checkpoint d --resume$' \
  "$lane/calls")" = 2
for folder in "-C /bin" --chdir=/bin; do
  # shellcheck disable=SC2086 # two words
  launch "1 1 0" 0 "a program in the folder of $folder" -np 1 -- env $folder -- ./sh --checkpoint d
  check "gets --resume, too" test "$(grep -c -e "env $folder -- ./sh --checkpoint d --resume$" \
    "$lane/calls")" = 2
done
launch "1 1 0" 0 "a -- behind it" -np 1 -- env -- sh --checkpoint d -- -x.json
check "stays behind" test "$(grep -c -e 'env -- sh --checkpoint d --resume -- -x.json$' \
  "$lane/calls")" = 2
launch "1 0" 0 "an argument with a blank" -np 1 -- sh --checkpoint "d  e" -- "a  b"
check "stays one" test "$(tail -n 1 "$lane/calls")" = "$(head -n 1 "$lane/calls" |
  sed 's/ -- a/ --resume -- a/')"
launch "137 0" 0 "a killed rank, once more" -np 1 -- sh --checkpoint=d
restart='ended with code 137 (signal 9) after [0-9]* s; restart 1 of 3, 1 ranks, with --resume'
check "which is reported in one line" told "^starling-run: [0-9:]* $restart\$"
launch "1 0" 0 "--resume, given already" -np 1 -- sh --resume --checkpoint d
check "is not given twice" test "$(grep -c -e '--resume.*--resume' "$lane/calls")" = 0
launch "1 1 1 1 0" 1 "given up after 3 restarts" -np 1 -- sh --checkpoint d
check "that is 4 starts" calls 4
launch "1 0" 1 "--max-restarts 0" -np 1 --max-restarts=0 -- sh --checkpoint d
launch "2 0" 2 "bad usage of the program" -np 1 -- sh --checkpoint d
check "is no reason to restart" calls 1
launch "9 0" 1 "no --checkpoint" -np 1 -- sh --steps 3
check "no restart" calls 1
check "reported before and after" test "$(grep -c -e '--checkpoint' "$lane/err")" = 2
launch "1 1 1 0" 0 "--min-ranks" -np 4 --min-ranks 2 -- sh --servers 1 --checkpoint d
check "one rank fewer each time, down to --min-ranks" \
  test "$(sed 's/.*-np \(.\).*/\1/' "$lane/calls" | tr -d '\n')" = 4322
launch "1 0" 0 "no quick failure" -np 2 --min-ranks 1 --quick 0 -- sh --checkpoint d
check "no rank fewer" test "$(grep -c -e '-np 2' "$lane/calls")" = 2
launch "1 0" 0 "numbers with zeros in front" -np 08 --min-ranks 07 --quick 09 --max-restarts 08 -- \
  sh --servers 06 --checkpoint d
check "are decimal" test "$(sed 's/.*-np \(.*\) sh.*/\1/' "$lane/calls" | tr '\n' ' ')" = "8 7 "
(cd "$lane" && launch "0" 0 "wildcards of --mpirun" -np 1 --mpirun '*' -- sh --checkpoint d)
check "are no files" called "mpirun .*\* -np 1 sh"
# a clock that goes back by an hour each time that it is read; a run of 2 s is not a quick one
mkdir -p "$lane/bin"
cat >"$lane/bin/date" <<'END'
#!/bin/sh
[ "$1" = +%s ] || exec /bin/date "$@"
hours=$(cat "$CALLS.hours" 2>/dev/null || echo 0)
echo $((hours + 1)) >"$CALLS.hours"
echo $((2000000000 - 3600 * hours))
END
chmod +x "$lane/bin/date"
sed 's/^read -r code/sleep 2; &/' "$lane/mpirun" >"$lane/slow" && chmod +x "$lane/slow"
cp "$lane/mpirun" "$lane/kept"; mv "$lane/slow" "$lane/mpirun"
path=$PATH; PATH=$lane/bin:$PATH
launch "1 0" 0 "a clock that is set back" -np 2 --min-ranks 1 --quick 1 -- sh --checkpoint d
PATH=$path; mv "$lane/kept" "$lane/mpirun"
check "makes no failure a quick one" test "$(grep -c -e '-np 2' "$lane/calls")" = 2
launch "hang 0" 0 "an mpirun that goes on without ranks" -np 1 -- sh --checkpoint d
check "is killed and restarted" test "$(grep -c "without any rank\|restart 1 of 3" "$lane/err")" = 2
launch "0" 0 "hosts given" -np 9999 --mpirun "--hostfile h --map-by node" -- sh --checkpoint d
check "are left alone" called "--hostfile h --map-by node -np 9999 sh"
check "without a message about cores" test "$(grep -c cores "$lane/err")" = 0
launch "0" 0 "too few cores" -np 9999 -- sh --checkpoint d
check "is reported" told "cores for 9999 ranks: adding --oversubscribe"
check "and added" called "--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 9999"
stand_in "mpirun (Open MPI) 5.0.3"
launch "0" 0 "Open MPI 5" -np 9999 -- sh --checkpoint d
check "has other options" \
  called "--map-by :OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 -np 9999 sh"
stand_in "HYDRA build details: Version: 4.0.2"
launch "0" 0 "MPICH" -np 9999 -- sh --checkpoint d
check "has fewer options" called "^mpirun -bind-to none -np 9999 sh"
for wrong in "" "-np" "-np x -- sh" "-np 0 -- sh" "-np 2" "-np 2 --" "-np 2 --min-ranks 3 -- sh" \
  "-np 2 --max-restarts -1 -- sh" "--wrong -np 2 -- sh" \
  "-np 2 -- ./no-such-program" "-np 3 --min-ranks 1 -- sh --servers 1 --checkpoint d"; do
  launch "0" 2 "refused: $wrong" $wrong
  check "in a line, nothing started" test "$(grep -c . "$lane/err")" = 1 -a ! -s "$lane/calls"
done
launch "0" 0 "--help" --help
check "the help lists the options" \
  test "$(grep -c -e '--max-restarts\|--min-ranks\|--mpirun\|SIGTERM' "$lane/out")" -ge 4
end_lanes words

# ---- ranks that are lost ----

skip() { n=$((n + 1)); echo "ok $n # SKIP kills: $*"; echo "1..$n"; exit $failed; }
grep -q '^#define SL_HAVE_MPI 1' config.h 2>/dev/null || skip "built without MPI"
command -v mpirun >/dev/null || skip "no mpirun"
command -v pgrep >/dev/null || skip "no pgrep"
case $(mpirun --version 2>/dev/null) in *"Open MPI"*) ;; *) skip "mpirun is not Open MPI's" ;; esac

now() { date +%s%3N; }
started=$(now)
# A rank writes its process id before it starts.
cat >"$work/rank" <<'END'
#!/bin/sh
echo $$ >"$RANKS/new.$OMPI_COMM_WORLD_RANK"
mv "$RANKS/new.$OMPI_COMM_WORLD_RANK" "$RANKS/$OMPI_COMM_WORLD_RANK"
exec "$@"
END
chmod +x "$work/rank"

steps=200 checkpoints=28 # every 7 steps, and one at the end
# train NAME RANKS OPTIONS...: into $lane/NAME*; the options come before "--"
train() {
  name=$1 ranks=$2; shift 2
  options=''
  while [ "$1" != -- ]; do
    options="$options $1"
    shift
  done
  shift
  RANKS=$lane/ranks timeout -k 20 240 "$launcher" -np "$ranks" $options -- "$work/rank" "$mlp" \
    --kvstore dist_sync --hidden 128 --batch 50 --steps $steps --momentum 0.9 \
    --checkpoint "$lane/$name" --checkpoint-every 7 --keep 99 \
    --save "$lane/$name.weights" --log "$lane/$name.jsonl" "$@" >"$lane/out" 2>"$lane/err"
}
fresh() { rm -rf "${lane:?}/$1" "$lane/$1".* "$lane/ranks"; mkdir "$lane/ranks"; }
# end_ranks: after a run that hung
end_ranks() {
  for file in "$lane"/ranks/[0-9]*; do
    [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
  done
}

# until_ TEST...: waits until the test succeeds or the run in the background is over
until_() { while ! "$@" && kill -0 "$job" 2>/dev/null; do sleep 0.01; done; }
# has_checkpoint [I]: the i-th, or the first
has_checkpoint() { [ -e "$lane/cut/checkpoint-$(printf %09d $((7 * ${1:-1}))).safetensors" ]; }
has_last() { [ -e "$lane/cut/checkpoint-$(printf %09d $steps).safetensors" ]; }
has_rank() { [ -e "$lane/ranks/$victim" ]; }
# No pause: writing takes milliseconds.
until_writing() {
  while kill -0 "$job" 2>/dev/null; do
    for file in "$lane"/cut/*.safetensors.??????; do [ -e "$file" ] && return; done
  done
}
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }

losses() { grep 'loss": *[0-9]' "$1" | sed 's/, "samples_per_s".*//'; }
same_log() {
  losses "$lane/whole.jsonl" >"$lane/a"
  losses "$lane/cut.jsonl" >"$lane/b"
  cmp -s "$lane/a" "$lane/b"
}
# The folder has the files of the undisturbed run, and no other.
same_checkpoints() { diff -rq -x manifest.json "$lane/whole" "$lane/cut" >>"$lane/err"; }

# undisturbed RANKS OPTIONS...: a whole run, and the times of its first checkpoint and of its end
undisturbed() {
  fresh whole
  ln -sfn whole "$lane/cut" # for has_checkpoint
  train whole "$@" & job=$!
  victim=0
  until_ has_rank; t0=$(now)
  until_ has_checkpoint; t1=$(now)
  until_ has_last; t2=$(now)
  wait "$job"; code=$?
  t3=$(now)
  rm "$lane/cut"
  opening=$((t1 - t0)) middle=$((t2 - t1)) closing=$((t3 - t2))
  check "an undisturbed run of $1 ranks" test "$code" = 0
}

# draw MOST: the next number, below MOST
draw() {
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  drawn=$(((seed >> 8) % ($1 + 1)))
}

# wait_for MOMENT
wait_for() {
  until_ has_rank
  case $1 in
    opening)
      draw $opening
      pause $drawn
      ;;
    middle)
      draw $((checkpoints - 8))
      until_ has_checkpoint $((drawn + 1))
      draw $((middle / checkpoints))
      pause $drawn
      ;;
    writing)
      draw $((checkpoints - 8))
      until_ has_checkpoint $((drawn + 1))
      until_writing
      ;;
    closing)
      draw $closing
      until_ has_last
      pause $drawn
      ;;
  esac
}

# judge WHAT: the run that ended with $code must have all results of the undisturbed one
judge() {
  if [ $code != 0 ]; then
    say_not_ok "$1: ended with code $code"
  elif told "passed over"; then
    say_not_ok "$1: left a damaged checkpoint"
  elif ! cmp -s "$lane/whole.weights" "$lane/cut.weights"; then
    say_not_ok "$1: other weights than undisturbed"
  elif ! same_checkpoints; then
    say_not_ok "$1: other checkpoints than undisturbed"
  elif ! same_log; then
    say_not_ok "$1: another log than undisturbed"
  else
    say_ok "$1, to the same end"
  fi
}

# moments COUNT: the names of this number of moments, in a fixed order
moments() {
  while :; do
    echo middle opening writing closing middle middle writing opening middle closing
  done | head -n 100 | tr '\n' ' ' | cut -d ' ' -f 1-"$1"
}
# killed WHO RANK RANKS SEED OPTIONS...: a rank, again and again
killed() {
  who=$1 rank=$2 size=$3 seed=$4; shift 4
  undisturbed "$size" -- "$@"
  count=0 hit=0
  for moment in $(moments "${SL_KILLS:-6}"); do
    [ $(($(now) - started)) -lt $((${SL_KILL_SECONDS:-15} * 1000)) ] || {
      echo "# $who: out of time after $count kills" >>"$lane/tap"
      break
    }
    fresh cut
    train cut "$size" --max-restarts 1 -- "$@" & job=$!
    victim=$rank
    wait_for $moment
    kill -9 "$(cat "$lane/ranks/$rank")" 2>/dev/null
    half=''
    for file in "$lane"/cut/*.safetensors.??????; do
      [ -e "$file" ] && half=", half a file left"
    done
    wait "$job"; code=$?
    [ $code -lt 124 ] || end_ranks
    count=$((count + 1))
    told "; restart 1 of 1" && hit=$((hit + 1))
    from=$(sed -n 's/.*Going on from .*, \(after step [0-9]*\) of.*/went on \1/p' "$lane/out" |
      head -n 1)
    told "; restart" || from="was done already"
    what="$who killed, $moment$half: ${from:-began anew}"
    judge "$what"
  done
  check "$who: $hit of $count kills were in time" test $((3 * hit + 3)) -ge $count
}

# ---- ends by a signal, and other numbers of ranks ----

# stopped SIGNAL CODE WHOM: the signal goes to rank 1 or to the launcher; then the run goes on
stopped() {
  signal=$1 want=$2 whom=$3
  for _ in 1 2 3 4 5 6 7 8 9 10; do # again if the run ended before the signal
    fresh cut
    train cut 2 -- & job=$!
    victim=1
    until_ has_rank; until_ has_checkpoint
    if [ "$whom" = "a rank" ]; then
      kill -"$signal" "$(cat "$lane/ranks/1")"
    else
      kill -"$signal" "$(pgrep -P "$(pgrep -P "$job" timeout)")"
    fi
    wait "$job" 2>>"$lane/err"; code=$?
    has_last || break
  done
  check "SIG$signal to $whom: code $want (was $code)" test $code = "$want"
  check "SIG$signal to $whom: no restart" test "$(grep -c '; restart' "$lane/err")" = 0
  at=$(sed -n 's/^Checkpoint  .*checkpoint-0*\([0-9]*\)\.safetensors.*/\1/p' "$lane/out")
  check "SIG$signal to $whom: the output says how to go on, after step ${at:-none}" \
    test -e "$lane/cut/checkpoint-$(printf %09d "${at:-0}").safetensors"
  train cut 2 -- --resume
  check "SIG$signal to $whom: goes on there" \
    grep -q "Going on from .* after step ${at:-none} of" "$lane/out"
  check "SIG$signal to $whom: to the weights of an undisturbed run" \
    cmp -s "$lane/whole.weights" "$lane/cut.weights"
}

signals() {
  undisturbed 2 --
  train whole 2 --
  code=$?
  check "a folder in use is refused by the program: code 2, no restart" \
    test $code = 2 -a "$(grep -c '; restart' "$lane/err")" = 0
  for step in 7 98 200; do # a file without the others, which could be read instead
    fresh cut
    mkdir "$lane/cut"
    cp "$lane/whole/checkpoint-$(printf %09d $step).safetensors" "$lane/cut/"
    train cut 2 -- --resume
    check "the checkpoint of step $step alone leads to the same weights" \
      cmp -s "$lane/whole.weights" "$lane/cut.weights"
  done
  fresh cut
  # a killed mpirun cannot remove its files: they are in the lane's folder
  OMPI_MCA_orte_tmpdir_base=$lane OMPI_MCA_btl_vader_backing_directory=$lane \
    train cut 2 -- & job=$!
  victim=1
  until_ has_rank; until_ has_checkpoint
  kill -9 "$(pgrep -P "$(pgrep -P "$(pgrep -P "$job" timeout)")" mpirun)"
  wait "$job"; code=$?
  check "mpirun itself killed: restarted" told "; restart 1 of 3"
  judge "mpirun itself killed"
  stopped TERM 0 "a rank"
  stopped TERM 0 "the launcher"
  stopped INT 0 "the launcher"
  fresh cut
  train cut 3 --min-ranks 2 --quick 600 -- & job=$!
  victim=2
  until_ has_rank; until_ has_checkpoint
  kill -9 "$(cat "$lane/ranks/2")"
  wait "$job"; code=$?
  check "a rank of three killed: goes on with two" told "restart 1 of 3, 2 ranks"
  check "and ends well" test $code = 0
  loss=$(sed -n 's/.*"loss": *\([0-9.e+-]*\).*/\1/p' "$lane/cut.jsonl" | tail -n 1)
  check "with a sensible loss: ${loss:-none}" awk "BEGIN { exit !(${loss:-9} < 0.5) }"
}

for name in worker server first; do
  case $name in
    worker) set -- "a worker" 1 2 11 ;;
    server) set -- "a server" 2 3 22 --servers 1 ;;
    first) set -- "rank 0" 0 2 33 ;;
  esac
  (begin_lane $name; killed "$@") &
done
(begin_lane signals; signals) &
end_lanes worker server first signals

echo "1..$n"
exit $failed
