#!/bin/sh
# The effect of StarPU's variables and our options on the trainers: each setting beside the
# defaults, in turns, by starling-tune. Prints doc/tuning.md's table; --write puts it there.
#   bench/tuning.sh [--write FILE] [--build DIR] [--rounds 5] [--seconds 0.5]
#                   [--programs "lenet mlp lstm_lm"] [--only WORDS]
# DIR is the build folder (default: build, if there is one, or the current folder). --seconds is a
# run's length, --only takes the settings that have WORDS in them. Takes about six minutes on 2
# cores, which should have nothing else to do.
set -eu
write='' build='' rounds=5 seconds=0.5 programs='lenet mlp lstm_lm' only=''
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
fail() { echo "tuning.sh: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --write) write=$2 ;;
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --programs) programs=$2 ;;
    --only) only=$2 ;;
    *) usage ;;
  esac
  shift 2
done
if [ -z "$build" ]; then
  for build in build .; do
    [ ! -x $build/tools/starling-tune ] || break
  done
fi
tune=$build/tools/starling-tune
[ -x "$tune" ] || fail "$tune is missing: run make, or name the build folder by --build"
begin='<!-- begin: bench/tuning.sh -->' end='<!-- end: bench/tuning.sh -->'
[ -z "$write" ] || grep -qxF -e "$begin" "$write" || fail "$write: has no line $begin"

# A line each; "# " begins a part of the table.
settings() {
  cat <<'END'
# schedulers
STARPU_SCHED=ws
STARPU_SCHED=prio
STARPU_SCHED=eager
STARPU_SCHED=dmda
STARPU_SCHED=dmdas
# workers and slices
STARPU_NCPU=1
STARPU_NCPU=1 --replicas 2
STARPU_NCPU=3
--replicas 1
--replicas 4
--microbatches 2
--stages 2
# binding
STARPU_WORKERS_NOBIND=1
STARPU_MAIN_THREAD_BIND=1
STARPU_WORKERS_CPUID=1-
# what the scheduler knows
STARPU_SCHED=dmda STARPU_CALIBRATE=1
STARPU_MIN_PRIO=0 STARPU_MAX_PRIO=0
STARPU_LIMIT_MIN_SUBMITTED_TASKS=10 STARPU_LIMIT_MAX_SUBMITTED_TASKS=20
# memory
STARPU_SCHED=dmda STARPU_PREFETCH=0
STARPU_LIMIT_CPU_MEM=4096
GLIBC_TUNABLES=glibc.malloc.hugetlb=1
# libraries
--tune
OPENBLAS_NUM_THREADS=2
OMP_NUM_THREADS=2
END
}
# The GPU's; measured if there is one.
gpu_settings() {
  cat <<'END'
# GPU
--devices cuda:0
--devices cuda:0,cpu
--devices cuda:0 STARPU_SCHED=lws
--devices cuda:0 STARPU_CUDA_PIPELINE=0
--devices cuda:0 STARPU_CUDA_PIPELINE=4
--devices cuda:0 STARPU_PREFETCH=0
--devices cuda:0 STARPU_NWORKER_PER_CUDA=2
--devices cuda:0 --kvstore local
END
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# performance models as on a machine that has never run this
export STARPU_HOME="$work" STARPU_SILENT=1
for variable in $(env | sed -n 's/^\(STARPU_[A-Z_]*\)=.*/\1/p'); do
  case $variable in STARPU_HOME | STARPU_SILENT | STARPU_NCUDA) ;; *) unset "$variable" ;; esac
done
# the library itself gives OpenBLAS and oneDNN one thread a worker
unset OPENBLAS_NUM_THREADS OMP_NUM_THREADS 2>/dev/null || :
all_settings() {
  settings
  ls /dev/nvidia[0-9]* >/dev/null 2>&1 && [ "${STARPU_NCUDA:-1}" != 0 ] && gpu_settings
}
all_settings | grep -F -e "$only" -e '# ' >"$work/settings"
for program in $programs; do
  set -- --rounds "$rounds" --trial-seconds "$seconds"
  while IFS= read -r setting; do
    case $setting in '# '*) ;; *) set -- "$@" --compare "$setting" ;; esac
  done <"$work/settings"
  "$tune" "$@" -- "$build/examples/$program" >"$work/$program" ||
    fail "$program: starling-tune failed"
done

# "1234 1.2 0.987 0.012 5  setting" of each program, into a row of all; values beyond the noise are
# bold
table() {
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  echo "$(nproc) cores (${cpu:-unknown}); defaults of each trainer, generated data;" \
    "medians of $rounds runs of $seconds s, in turns:"
  echo
  for program in $programs; do sed "1d; s/^/$program /" "$work/$program"; done |
    awk -v programs="$programs" -v list="$work/settings" '
    BEGIN { count = split(programs, name, " ") }
    {
      setting = $0
      sub(/^ *[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +/, "", setting)
      sub(/  FAILED: .*/, "", setting)
      if (setting == "(as given)") cell[$1, setting] = sprintf("%.0f /s ± %s %%", $2, $3)
      else if ($4 == "-") cell[$1, setting] = "fails"
      else {
        beyond = $5 == "-" ? 0 : $4 - $5 > 1.02 || $4 + $5 < 0.98
        cell[$1, setting] = sprintf(beyond ? "**%.2f** ± %.2f" : "%.2f ± %.2f", $4, $5)
      }
    }
    function row(title, setting, line, i) {
      line = "| " title " |"
      for (i = 1; i <= count; i++) line = line " " cell[name[i], setting] " |"
      print line
    }
    END {
      line = "| setting |"; rule = "| --- |"
      for (i = 1; i <= count; i++) { line = line " " name[i] " |"; rule = rule " --- |" }
      print line; print rule
      row("defaults: samples a second", "(as given)")
      none = substr("  |  |  |  |  |  |  |  |", 1, 3 * count)
      while ((getline setting <list) > 0)
        if (setting ~ /^# /) print "| *" substr(setting, 3) "* |" none
        else row("`" setting "`", setting)
    }'
}
table >"$work/table"
if [ -n "$write" ]; then
  awk -v begin="$begin" -v end="$end" -v table="$work/table" '
    $0 == end { skip = 0 }
    !skip { print }
    $0 == begin {
      skip = 1
      print ""
      while ((getline line <table) > 0) print line
      print ""
    }' "$write" >"$work/new"
  cat "$work/new" >"$write"
  echo "$write is written"
else
  cat "$work/table"
fi
