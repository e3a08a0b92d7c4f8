#!/bin/bash
# build-aux/check-docs on pages with one planted fault each: it must find every one of them, and
# nothing in the page without a fault. Nothing of Starling runs here; `make check-docs` runs the
# real pages.
check=${SL_SRCDIR:-.}/build-aux/check-docs
python3 -c '' 2>/dev/null || { echo "1..0 # SKIP no python3 here"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n=0 failed=0

# page NAME: a page from the standard input, after a first paragraph
page() { { echo "# A page"; echo; cat; } >"$work/$1.md"; }
run() { "$check" --no-install "$work/$1.md" >"$work/out" 2>&1; }
# says STATUS WORDS PAGE WHAT: check-docs ends with STATUS and says WORDS
says() {
  local status=$1 words=$2 name=$3; shift 3
  run "$name"; local got=$?
  n=$((n + 1))
  if [ $got = "$status" ] && grep -q -e "$words" "$work/out"; then
    echo "ok $n - $*"
  else
    failed=1
    echo "not ok $n - $* (status $got)"
    sed 's/^/# /' "$work/out"
  fi
}

page right <<'END'
<!-- check: file greeting.txt -->
```text
hello 7 times
```

```console
$ cat greeting.txt
hello 3 times
$ printf 'epoch 1/2  test accuracy 91.20 %%\nDone in 4.5 s\n'
epoch 1/2  test accuracy 93.00 %
...
$ cd /; X=3; export X
$ pwd; echo "$X conv1"
/
5 conv1
```

<!-- check: status 3 -->
```console
$ exit 3
```

<!-- check: with 100 => 2 -->
```console
$ seq -f 'line %g of 100' 100 | head -n 2
line 1 of 100
line 2 of 100
line 3 of 100
```

See [below](#below) and `build-aux/check-docs`.

## Below
END
says 0 '6 commands ran' right "a page without a fault: \
numbers differ, folders and variables stay, a file, a status, a smaller run"

page fails <<'END'
```console
$ false
```
END
says 1 'ended with 1' fails "a command that fails"

page pipe <<'END'
```console
$ false | cat
```
END
says 1 'ended with 1' pipe "a command that fails in a pipe"

page unknown <<'END'
```console
$ lenett --epochs 2
```
END
says 1 'ended with 127' unknown "a command that is not there"

page option <<'END'
```console
$ ls --no-such-option
```
END
says 1 'ended with 2' option "an option that is not there"

page missing <<'END'
```console
$ echo one
one
two
```
END
says 1 'shown and not printed: two' missing "a line that is shown and not printed"

page more <<'END'
```console
$ printf 'one\ntwo\n'
one
```
END
says 1 'printed and not shown: two' more "a line that is printed and not shown"

page text <<'END'
```console
$ echo 'Weights        lenet.json'
Weights        lenet.safetensors
```
END
says 1 'shown: Weights' text "another text"

page layer <<'END'
```console
$ echo 'conv2 done'
conv1 done
```
END
says 1 'shown: conv1' layer "another number in a name"

page accuracy <<'END'
```console
$ echo 'test accuracy 61.00 %'
test accuracy 93.00 %
```
END
says 1 'shown: test accuracy' accuracy "an accuracy far from the one shown"

page perplexity <<'END'
```console
$ echo 'validation perplexity 14.1'
validation perplexity 10.2
```
END
says 1 'shown: validation' perplexity "a perplexity far from the one shown"

page skipped <<'END'
<!-- check: skip a GPU is needed -->
```console
$ false
```

<!-- check: needs no-such-program -->
```console
$ false
```
END
says 0 'SKIP: .*a GPU is needed: false' skipped "blocks that are skipped, with a message"
says 0 'SKIP: .*no no-such-program here' skipped "blocks whose program is missing, with a message"

echo 'See [here](nowhere.md).' | page link
says 1 'no such file: nowhere.md' link "a link to a page that is not there"
echo 'See [here](#nowhere).' | page anchor
says 1 'no such heading' anchor "a link to a heading that is not there"
echo 'See `core/base/nothing.c`.' | page name
says 1 'no such file: core/base/nothing.c' name "a file that is not there"
printf '    $ lenet --epochs 2\n' | page indented
says 1 'not in a ```console block' indented "a command outside a block"
printf '%0120d\n' 0 | page wide
says 1 '120 columns' wide "a line that is too long"

# the real pages: their links, headings, files and locks
n=$((n + 1))
if "$check" --static >"$work/out" 2>&1; then
  echo "ok $n - the pages' links, headings, files and locks"
else
  failed=1
  echo "not ok $n - the pages' links, headings, files and locks"
  sed 's/^/# /' "$work/out"
fi

echo "1..$n"
exit $failed
