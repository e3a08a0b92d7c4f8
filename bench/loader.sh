#!/bin/sh
# How fast loaders read: a folder of JPEGs by 1 and by 2 threads beside libjpeg-turbo alone, a
# training of ResNet-20 on it beside the same from memory, and an .npy file that is not in memory
# beside read() of it, in the file's order and in random order. Prints the ratios; all lines go to
# the error stream.
#   bench/loader.sh [--folder DIR] [--pictures 10000] [--megabytes 4000] [--rounds 3]
#                   [--bench PROGRAM]
# DIR gets the files (default: /var/tmp/starling-loader); take the disk in question, and more
# megabytes than the machine has memory. PROGRAM is bench_loader (default: bench/bench_loader, made
# by "make bench").
set -eu
folder=/var/tmp/starling-loader pictures=10000 megabytes=4000 rounds=3 program=bench/bench_loader
usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --folder) folder=$2 ;;
    --pictures) pictures=$2 ;;
    --megabytes) megabytes=$2 ;;
    --rounds) rounds=$2 ;;
    --bench) program=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -x "$program" ] || { echo "loader.sh: $program is missing: run 'make bench'" >&2; exit 1; }
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
measure() {
  "$program" "$@" --folder "$folder" --rounds "$rounds" >"$lines"
  cat "$lines" >&2
  echo "$*: $(tail -n 1 "$lines")"
}
measure pictures --pictures "$pictures" --batch 16 --threads 1
measure pictures --pictures "$pictures" --batch 16 --threads 2
measure train --pictures "$pictures" --batch 16 --threads 1
measure array --megabytes "$megabytes"
measure array --megabytes "$megabytes" --shuffle
