#!/bin/sh
# A training over ranks when one rank is lost, is stopped, gets a signal, or fails by itself: all
# others end soon, with a message that names the cause. The moments are drawn from fixed seeds. The
# test does not measure speed: "soon" is half a minute.
set -u
. "${SL_SRCDIR:-.}/tests/common/ranks.sh"
soon=30 timeout=3

# begin NAME RANKS OPTIONS...: lenet, until it has done some steps
begin() {
  name=$1 count=$2; shift 2
  start "$count" "$lenet" --kvstore dist_sync --timeout $timeout --batch 12 --steps 100000 \
    --quiet $images --log "$run/log.jsonl" "$@"
  until_true 60 has_begun && [ -s "$run/log.jsonl" ] && return 0
  not_ok "$name: does not begin"; return 1
}
has_begun() { grep -q '"step"' "$run/log.jsonl" 2>/dev/null || has_ended "$launcher"; }

# A moment within the first second of the training, always the same for a seed.
wait_until() { sleep "$(awk -v seed="$1" 'BEGIN { srand(seed); printf "%.3f", rand() }')"; }

# others RANK: all but that one
others() { for r in $(seq 0 $((ranks - 1))); do [ "$r" = "$1" ] || printf '%s ' "$r"; done; }

# A rank's messages, without those of Open MPI ("Read -1, expected 1602000" if the peer has ended)
said() { grep -v '^\[.*\] ' "$run/err.$1"; }

# all_say CODE WORDS RANK...: each of these ranks ends soon, with that exit code, one line with
# WORDS, and no output
all_say() {
  code=$1 words=$2; shift 2
  until_true $soon have_ended "$@" || { not_ok "$name: some of ranks $* do not end"; return 1; }
  for rank; do
    lines=$(said "$rank" | grep -c .)
    if [ "$(code_of "$rank")" != "$code" ] || [ "$lines" != 1 ] || [ -s "$run/out.$rank" ] ||
      ! said "$rank" | grep -q -e "$words"; then
      not_ok "$name: rank $rank ends with $(code_of "$rank") and $lines lines"; return 1
    fi
  done
}

# ---- the start: unequal builds, interfaces, ports ----
short="$lenet --kvstore dist_sync --batch 12 --steps 3 --quiet"
shown=log
# ranks with other kernels of OpenBLAS, as on another processor; it takes Prescott's on processors
# that it does not know
core() { env "$@" OPENBLAS_VERBOSE=2 "$lenet" --version 2>&1 | sed -n 's/^Core: //p' | head -n 1; }
other=Prescott; [ "$(core)" != Prescott ] || other=Haswell
if mpirun_for 60 -np 1 $short : -np 1 -x OPENBLAS_CORETYPE=$other $short >"$work/log" 2>&1 &&
  grep -q "rank 1 computes with .*$other.*, rank 0 with .*may differ" "$work/log"; then
  ok "a rank with another processor's kernels prints a warning"
elif [ "$(core OPENBLAS_CORETYPE=$other)" != $other ]; then
  skip "a rank with another processor's kernels" "this OpenBLAS has kernels for one processor alone"
else
  not_ok "a rank with another processor's kernels"
fi
mpirun_for 60 -np 2 $short --net-interface lo --net-ports 29000-29999 >"$work/log" 2>&1
verdict $? "--net-interface and --net-ports"
check "two equal ranks print no warning" test ! -s "$work/log"
mpirun_for 60 -np 2 $short --net-interface none >"$work/log" 2>&1
check "an interface that is not there is named" grep -q "network interface 'none'" "$work/log"
mpirun_for 60 -np 2 $short --net-ports 9-5 >"$work/log" 2>&1
check "ports in the wrong order are refused" grep -q "ports '9-5': write FIRST-LAST" "$work/log"
shown="run/err.* run/mpirun"

# ---- ranks that do different things ----
# mpirun does not stop the others here: the rank whose option is bad runs on for a while
start 3 "${SL_BUILDDIR:-.}/tests/parallel/unequal_ranks" option
until_true $soon have_ended 0 1 2
if [ "$(code_of 0) $(code_of 1) $(code_of 2)" = "1 1 1" ] &&
  said 0 | grep -q "rank 2: there is no log level 99" &&
  said 1 | grep -q "rank 2: there is no log level 99" &&
  said 2 | grep -q ": there is no log level 99" &&
  [ "$(cat "$run"/err.? | grep -c "again: .*there is no exchange 77")" = 3 ] &&
  [ "$(cat "$run"/err.? | grep -c "again: .*cpu:4000")" = 3 ] &&
  [ "$(cat "$run"/err.? | grep -c "again: no error")" = 3 ]; then
  ok "an option that is bad on one rank alone: $(said 0)"
else
  not_ok "an option that is bad on one rank alone: codes $(code_of 0), $(code_of 1), $(code_of 2)"
fi
# a message that is too long must not be written beyond the receiver's memory
for bytes in 100 5000 1000000; do
  start 2 "${SL_BUILDDIR:-.}/tests/parallel/unequal_ranks" $bytes
  if until_true $soon have_ended 1 && [ "$(code_of 1)" = 1 ] &&
    said 1 | grep -q "rank 0 sent $bytes bytes where rank 1 expects 16: the two ranks do different"; then
    ok "$bytes bytes where 16 are expected: an error"
  else
    not_ok "$bytes bytes where 16 are expected: code $(code_of 1)"
  fi
done

# ---- killed: worker, server, rank 0 ----
# lost NAME RANK RANKS SEED OPTIONS...
lost() {
  what=$1 victim=$2 count=$3 seed=$4; shift 4
  begin "$what is killed (seed $seed)" "$count" "$@" || return
  wait_until "$seed"
  kill -KILL "$(cat "$run/pid.$victim")"
  all_say 1 "rank $victim (.*process $(cat "$run/pid.$victim")) was lost at" $(others "$victim") &&
    ok "$name: $(said "$(others "$victim" | cut -d ' ' -f 1)")"
}
for seed in 1 2 3; do
  lost "a worker" 1 3 $seed
  lost "a server" 2 3 $seed --servers 1
  lost "rank 0" 0 3 $seed
done

# ---- the same over TCP, as between machines: MPI notices a lost rank by itself ----
via="--mca btl tcp,self"
lost "a worker, over TCP," 1 3 4
lost "rank 0, over TCP," 0 3 5
via=

# ---- without the test's rank script: mpirun itself ends the others ----
name="a worker is killed under mpirun alone"
end_all
rm -rf "$run"
mkdir "$run"
cat >"$work/with-pid" <<'EOF'
#!/bin/sh
echo $$ >"$1.$OMPI_COMM_WORLD_RANK"; shift; exec "$@"
EOF
chmod +x "$work/with-pid"
(exec timeout -k 10 100 mpirun $mpi -np 3 "$work/with-pid" "$run/pid" "$lenet" \
  --kvstore dist_sync --timeout $timeout --batch 12 --steps 100000 --quiet $images \
  --log "$run/log.jsonl") >"$run/out" 2>"$run/mpirun" &
launcher=$!
none_left() { has_ended "$(cat "$run/pid.0")" && has_ended "$(cat "$run/pid.2")"; }
if until_true 60 has_begun && kill -KILL "$(cat "$run/pid.1")" &&
  until_true $soon has_ended "$launcher"; then
  wait "$launcher"; got=$?; launcher=
  if [ $got != 0 ] && until_true $soon none_left; then
    ok "$name: all end, mpirun with $got"
  else
    not_ok "$name: mpirun ends with $got, or ranks are left"
  fi
else
  not_ok "$name: no start or no end"
fi

# ---- stopped: a rank is silent, but its connections stand ----
for victim in 1 0; do
  begin "rank $victim is stopped" 3 || continue
  kill -STOP "$(cat "$run/pid.$victim")"
  if all_say 1 "rank $victim (.*) has not been heard of since" $(others $victim); then
    ok "$name: $(said 2)"
  fi
  # it reads the others' verdict, or finds that they have ended
  kill -CONT "$(cat "$run/pid.$victim")"
  if until_true $soon have_ended $victim && [ "$(code_of $victim)" = 1 ] &&
    [ "$(said $victim | grep -c .)" = 1 ]; then
    ok "rank $victim goes on: $(said $victim)"
  else
    not_ok "rank $victim, which goes on, ends with $(code_of $victim)"
  fi
done

# ---- a signal to end: all ranks end after the same step, with whole weights ----
losses() { grep '"step"' "$1" | sed 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e-]*\).*/\1 \2/'; }
# asked SIGNAL RANK RANKS OPTIONS...
asked() {
  signal=$1 victim=$2 count=$3; shift 3
  begin "SIG$signal to rank $victim of $count $*" "$count" --save "$run/weights" "$@" || return
  wait_until 4
  kill -"$signal" "$(cat "$run/pid.$victim")"
  until_true $soon have_ended $(others -1) || { not_ok "$name: some do not end"; return; }
  losses "$run/log.jsonl" >"$run/losses"
  for rank in $(others -1); do
    log=$run/log.rank$rank.jsonl; [ "$rank" = 0 ] && log=$run/log.jsonl
    if [ "$(code_of "$rank")" != 0 ] || [ -s "$run/err.$rank" ] ||
      ! losses "$log" | cmp -s - "$run/losses"; then
      done=$(losses "$log" | wc -l) all=$(wc -l <"$run/losses")
      not_ok "$name: rank $rank ends with $(code_of "$rank"), after $done of $all steps"
      return
    fi
  done
  if "$lenet" --steps 1 --quiet $images --load "$run/weights" 2>"$run/err.load"; then
    ok "$name: all end after step $(tail -n 1 "$run/losses" | cut -d ' ' -f 1)"
  else
    not_ok "$name: no whole weights"
  fi
}
asked TERM 0 2
asked TERM 2 3 --servers 1
asked INT 1 3

# ---- fails by itself ----
rm -rf "$work/full"; mkdir "$work/full"
if [ -e /dev/full ]; then
  ln -s /dev/full "$work/full/log.rank1.jsonl"
  name="rank 1's disk is full"
  start 3 "$lenet" --kvstore dist_sync --timeout $timeout --batch 12 --steps 100000 \
    --quiet $images --log "$work/full/log.jsonl"
  all_say 1 "rank 1: $work/full/log.rank1.jsonl: cannot be written" 1 &&
    all_say 1 "rank 1 (.*) failed: $work/full/log.rank1.jsonl: cannot be written" 0 2 &&
    ok "$name: $(said 2)"
fi
# a kernel whose wrong result would reach all ranks: no rank saves it
if [ -x tests/examples/failing_lenet ]; then
  name="rank 1's kernel fails in the last update of an epoch"
  SL_FAIL=sgd:86:1 && export SL_FAIL # it owns one shard; an epoch has 86 steps
  start 3 tests/examples/failing_lenet --kvstore dist_sync --timeout $timeout --batch 12 \
    --steps 100000 --quiet $images --checkpoint "$work/kept" --save "$work/saved"
  if all_say 1 "^failing_lenet: rank 1: sgd (layer .*) on cpu:0: no memory" 1 &&
    all_say 1 "rank 1 (.*) failed: sgd (layer" 0 2; then
    if [ -e "$work/saved" ] || ls "$work/kept" 2>/dev/null | grep -q .; then
      not_ok "$name: something was saved"
    else
      ok "$name: $(said 2)"
    fi
  fi
  unset SL_FAIL
fi
mkdir "$work/folder"
name="the folder for the weights is gone"
start 3 "$lenet" --kvstore dist_sync --timeout $timeout --batch 12 --steps 60 --quiet $images \
  --log "$run/log.jsonl" --save "$work/folder/weights"
if until_true 60 has_begun && rmdir "$work/folder"; then
  # all ranks know the failure, so only the first one reports it
  if all_say 1 "^lenet: $work/folder/weights" 0; then
    if until_true $soon have_ended 1 2 && [ "$(code_of 1)$(code_of 2)" = 11 ] &&
      [ -z "$(said 1)$(said 2)" ]; then
      ok "$name: $(said 0)"
    else
      not_ok "$name: the others end with $(code_of 1) and $(code_of 2)"
    fi
  fi
else
  not_ok "$name: does not begin"
fi

# ---- the link between two machines is cut ----
name="the link is cut"
. "${SL_SRCDIR:-.}/tests/common/machines.sh"
trap 'end_all; remove_machines; rm -rf "$work"' EXIT
if make_machines "$work" 10.99.0 >"$work/log" 2>&1; then
  inside=$on_first
  via=$over_machines
  if begin "$name" 3; then
    wait_until 6
    cut_link
    # each side reports the other one as lost
    all_say 1 "rank 2 (.*) has not been heard of since" 0 1 &&
      all_say 1 "rank 0 (.*) has not been heard of since" 2 &&
      ok "$name: $(said 0); $(said 2)"
    mend_link # mpirun's own daemons need it to end
  fi
else
  skip "$name" "no network namespace can be made here: $(head -n 1 "$work/log")"
fi

echo "1..$n"
exit $failed
