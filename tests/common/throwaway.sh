# For scripts that install: they source this file after tap.sh and go on in a copy of the machine's
# files that is thrown away at the end (an overlay, in a mount namespace). Root may do all there;
# the machine stays as it is. $work is a folder that all users can read.
if [ -z "${SL_THROWAWAY:-}" ]; then
  name=$(basename "$0")
  [ "$(id -u)" = 0 ] || skip_all "$name: needs root, for a mount namespace and a second user"
  layers=$(mktemp -d) || exit 1
  trap 'rmdir "$layers"' EXIT
  unshare -m sh -c '
    layers=$0
    mount -t tmpfs layers "$layers" && mkdir "$layers/upper" "$layers/work" "$layers/root" &&
      mount -t overlay root "$layers/root" \
        -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" || exit 77
    for folder in /proc /sys /dev; do mount --rbind $folder "$layers/root$folder" || exit 77; done
    SL_THROWAWAY=yes exec chroot "$layers/root" "$@"' "$layers" "$(realpath "$0")" "$@"
  status=$?
  [ $status -ne 77 ] || skip_all "$name: no overlay of the root folder here"
  exit $status
fi
work=$(mktemp -d) || exit 1
chmod 755 "$work"

# other COMMAND: as a user without a home, with an empty environment, in an empty folder
other() {
  folder=$(mktemp -d "$work/other.XXXXXX") && chown 65534:65534 "$folder" && cd "$folder" || return
  env -i PATH=/usr/local/bin:/usr/bin:/bin setpriv --reuid=65534 --regid=65534 --clear-groups \
    sh -c "$1" >"$work/out" 2>"$work/err"
}

# the README's program and its command
sed -n '/^```c$/,/^```$/p' "$top/README.md" | sed '1d;$d' >"$work/first.c"
chmod 644 "$work/first.c"
command=$(sed -n 's/^\$ \(gcc first\.c .*\)/\1/p' "$top/README.md")
check "the README has a program and its command" test -s "$work/first.c" -a -n "$command"

# tried NAME SETTINGS: what the other user does with an installation, after SETTINGS
tried() {
  check "$1: lenet trains" other "$2; lenet --quiet --steps 20 --save x.json && test -s x.json"
  check "$1: StarPU has no complaint" sh -c '! grep -i "starpu.*warning" "$1"' sh "$work/err"
  check "$1: starling-predict answers" other "$2; lenet --quiet --steps 20 --save x.json &&
    starling-predict --top 0 x.json digits >answers && test -s answers"
  check "$1: starling-trace finds StarPU's tool" other \
    "$2; lenet --quiet --steps 20 --trace t && starling-trace t"
  check "$1: $command" other "$2; cp '$work/first.c' . && $command && test -s first.json"
}
