#!/bin/sh
# starling-report: pages about real runs (one, a resumed one, two beside each other, with a trace)
# have the expected text, are whole HTML and fetch nothing; a browser shows them without overflow;
# bad input gets one line.
set -u
. "${SL_SRCDIR:-.}/tests/common/tap.sh"
report=${REPORT:-tools/starling-report}
lenet=${LENET:-examples/lenet}
lm=${LSTM_LM:-examples/lstm_lm}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1 STARPU_NCPU=2 STARPU_NCUDA=0
export STARPU_HOME="${STARPU_HOME:-$work}"
check() {
  what=$1; shift
  if "$@" >"$work/out" 2>"$work/err"; then ok "$what"; else not_ok "$what"; fi
}

# says PAGE TEXT...: the page holds each
says() {
  page=$1; shift
  for text; do
    if grep -qF -e "$text" "$work/$page"; then
      ok "$page says: $text"
    else
      not_ok "$page does not say: $text"
    fi
  done
}
lacks() { if grep -qE -e "$2" "$work/$1"; then not_ok "$1 holds $2"; else ok "$1 has no $2"; fi; }

# ---- logs of real runs ----
train() {
  name=$1; shift
  "$lenet" --quiet --batch 100 --seed 5 --log "$work/$name.jsonl" "$@" >"$work/out" 2>"$work/err"
}
train a --steps 12 --replicas 2 --confusion
train b --steps 8 --lr 0.05 --microbatches 2 --placement 'conv1-2,pool1-2=cpu:0;fc1-2=cpu:1'
train cut --steps 6 --replicas 2 --checkpoint "$work/dir"
train cut --steps 10 --replicas 1 --checkpoint "$work/dir" --resume
train lost --steps 300 --lr 1000 --activation relu
"$lm" --quiet --steps 6 --layers 1 --hidden 16 --embed 16 --log "$work/text.jsonl" \
  >"$work/out" 2>"$work/err"
# first_has, last_has NAME PATTERN: the log's first or last line matches
first_has() { head -n 1 "$work/$1.jsonl" | grep -q -e "$2"; }
last_has() { tail -n 1 "$work/$1.jsonl" | grep -q -e "$2"; }
for key in '"format": "starling log", "version": 1' '"program": "lenet"' '"rank": 0, "ranks": 1' \
  '"activation": null' '"lr": 0.1,' '"replicas": 2' '"name": "cpu:1"' '"starpu": "1.' \
  '"parameters": 431080' '"output": "20x24x24"'; do
  if head -n 1 "$work/a.jsonl" | grep -qF -e "$key"; then
    ok "the first line: $key"
  else
    not_ok "the first line lacks $key"
  fi
done
check "a layer's place" \
  first_has b '"name": "fc2".*"stage": 1, "devices": "cpu:1", "owner": "cpu"'
check "the last line: done" \
  last_has a '^{"end": "done", "seconds": [0-9.]*, "samples_per_s": [0-9.]*, "message": null}'
check "the last line: failed" last_has lost '^{"end": "failed".*"message": ".*loss'
check "a resumed run has a line for each process" test "$(grep -c '"format"' "$work/cut.jsonl")" = 2
check "and each step once" test "$(grep -c '"loss": [0-9]' "$work/cut.jsonl")" = 10
check "the second names the step after which it goes on" \
  sh -c "grep '\"format\"' '$work/cut.jsonl' | tail -n 1 | grep -q '\"from\": 6,'"
lines() { cat "$work/$1.jsonl" 2>/dev/null | wc -l; }
# a run that a signal ends says so in its log; a longer run if the first finished before the signal
for steps in 20000 200000; do
  "$lenet" --quiet --batch 20 --steps $steps --log "$work/stopped.jsonl" \
    >"$work/out" 2>"$work/err" & pid=$!
  while kill -0 $pid 2>/dev/null && [ "$(lines stopped)" -lt 4 ]; do sleep 0.05; done
  kill -TERM $pid 2>/dev/null
  wait $pid 2>/dev/null
  grep -q '"interrupted"' "$work/stopped.jsonl" && break
done
# the number of steps before the signal is chance: only the lines that every such log has are kept
sed -n '1,4p;$p' "$work/stopped.jsonl" >"$work/s" && mv "$work/s" "$work/stopped.jsonl"
check "the last line: interrupted" \
  last_has stopped '^{"end": "interrupted".*"message": "SIGTERM"}'
{
  head -n 5 "$work/a.jsonl"
  printf '{"step": 4, "checkpoint": "x", '
  echo '"stopped_s": 0.25, "write_s": 1.5, "bytes": 5000000}'
  echo '{"of the future": 1}'
} >"$work/killed.jsonl"
# a log of a version that wrote no first line
grep '"lr": 0.1, "samples' "$work/a.jsonl" | grep -v format >"$work/old.jsonl"

# each metric that a log may have, those of single outputs, and one that this version does not know
{
  head -n 1 "$work/a.jsonl"
  line='"samples_per_s": 9, "seconds": 1}'
  echo "{\"step\": 0, \"epoch\": 1, \"loss\": 2, \"lr\": 0.1, $line"
  echo '{"epoch": 1, "test_loss": 1, "test_top5": 0.5, "test_auc": 0.75, "test_r2": -3,
    "test_mae": 0.25, "test_rmse": 0.00125, "test_left.loss": 4, "test_left.accuracy": 0.25,
    "test_<img src=x>": -2, "test_word": "no number"}' | tr -d '\n'; echo
  echo "{\"step\": 1, \"epoch\": 2, \"loss\": 2, \"lr\": 0.1, $line"
  echo '{"epoch": 2, "test_loss": 1, "test_top5": 0.25, "test_auc": 0.5, "test_r2": 0.5,
    "test_mae": 0.5, "test_rmse": 0.0025, "test_left.loss": 8, "test_left.accuracy": 0.5,
    "test_<img src=x>": -1}' | tr -d '\n'; echo
} >"$work/metrics.jsonl"

# ---- a trace ----
mkdir "$work/trace"
cat >"$work/trace/trace.json" <<'EOF'
{"format": "starling trace", "version": 1, "producer": "Starling 0.1.0",
 "window_ms": 152.61, "wall_ms": 153.2, "steps": [11, 20], "tasks": 640,
 "devices": [{"worker": 0, "name": "CPU 0", "node": "RAM", "busy_ms": 75, "transfer_ms": 0,
   "overhead_ms": 5, "idle_ms": 20, "tasks": 320},
  {"worker": 1, "name": "CUDA <b>0", "node": "CUDA 0", "busy_ms": 50.5, "transfer_ms": 20,
   "overhead_ms": 9.5, "idle_ms": 20, "tasks": 320}],
 "layers": [{"name": "conv1", "forward_ms": 12.125, "backward_ms": 30.2, "update_ms": 0.4,
   "gflops": 12.25, "roofline_share": 0.61},
  {"name": "pool1", "forward_ms": 2, "backward_ms": 3, "update_ms": null,
   "gflops": null, "roofline_share": null}],
 "critical_path": {"ms": 120.5, "share": 0.79, "tasks": [{"name": "conv1 forward", "ms": 2.25}]},
 "bubble_share": 0.13,
 "overlap": {"compute_share": 0.801, "communication_share": null},
 "longest": [{"name": "fc1 sgd", "layer": "fc1", "pass": "update", "worker": 0,
   "start_ms": 3.5, "ms": 9.25}]}
EOF
cp "${SL_SRCDIR:-.}/doc/pipeline.svg" "$work/trace/trace.svg"
mkdir "$work/bare"
echo '{"format": "starling trace", "version": 1}' >"$work/bare/trace.json"
echo '<svg><script>x' >"$work/bare/trace.svg"

# ---- pages ----
write() {
  page=$1; shift
  check "$page: $(echo "$*" | sed "s|$work/||g")" "$report" -o "$work/$page" "$@"
}
write one.html "$work/a.jsonl"
says one.html '<h1>lenet: a</h1>' 'test accuracy' ' images/s' 'throughput, median' \
  '<td>20x24x24</td>' '>431,080<' '>any,any<' '>--activation<' 'scheduler ' 'how it ended'
says one.html '<h2>Confusion matrix</h2>' 'The most frequent mistakes:'
# each row of the table has the samples of its label
rows=$(grep -o '"confusion": .*' "$work/a.jsonl" | tr -d ' ' | grep -o '\[[0-9,]*\]' | tr -d '[]' |
  awk -F, '{ for (i = 1; i <= NF; i++) n += $i } END { print NR, n }')
check "the matrix has the 2,000 samples of the test set" test "$rows" = "10 2000"
write two.html "$work/a.jsonl" "$work/b.jsonl" --trace "$work/trace" --title 'A & B' --log-scale
says two.html '<h1>A &amp; B</h1>' 'All runs' '<td>cpu:1</td>' 'setting' \
  '<tr class="differs"><th scope="row">--lr</th><td>0.1</td><td>0.05</td></tr>' \
  '<tr><th scope="row">--seed</th>' 'Steps 11 to 20. Window: 152.61 ms.' 'width="75.00"' \
  'CUDA &lt;b&gt;0' 'x="50.50" y="0" width="20.00"' '>61.0 %<' \
  '79.0 % of the window' '>9.250<' 'src="data:image/svg+xml;base64,PHN2Zy'
check "the picture inside is the trace's" sh -c \
  "sed -n 's/.*base64,\([^\"]*\)\".*/\1/p' '$work/two.html' | base64 -d |
     cmp - '$work/trace/trace.svg'"
write resumed.html "$work/cut.jsonl"
says resumed.html 'taken over' 'going on after step 6' 'replicas 2 → 1'
awk '/"format"/ { sub(/"time": "[^"]*"/, "\"time\": \"2026-01-0" ++n "T01:02:03Z\"") } 1' \
  "$work/cut.jsonl" >"$work/days.jsonl"
write days.html "$work/days.jsonl"
says days.html '<th scope="row">Began</th><td>2026-01-01 01:02:03 UTC</td>' \
  '<td>taken over</td><td>2026-01-02 01:02:03 UTC, going on after step 6'
sed -n '/"from": 6/,$p' "$work/days.jsonl" >"$work/own.jsonl"
write own.html "$work/own.jsonl"
says own.html '<td class="num">6</td><td>taken over</td>' '<td class="num">6</td><td>resumed</td>'
lacks own.html '<td>began</td>'
write killed.html "$work/killed.jsonl"
says killed.html 'not in the log: killed, or still at work' '1 checkpoint' \
  'training stood still for 0.25 s' '5.0 MB' 'written in 1.50 s'
write ends.html "$work/lost.jsonl" "$work/stopped.jsonl" "$work/old.jsonl" "$work/text.jsonl"
says ends.html 'failed: ' 'interrupted: SIGTERM' 'The log has no line about this' \
  'aria-label="Perplexity"' 'a version that did not say'
write metrics.html "$work/metrics.jsonl"
says metrics.html '<b>25.00 %</b><span>test top-5 accuracy (best 50.00 % after step 1)</span>' \
  '<b>0.5000</b><span>test AUC (best 0.7500 after step 1)</span>' \
  '<b>0.5000</b><span>test R2</span>' '<span>test MAE (best 0.2500 after step 1)</span>' \
  '<b>0.0025</b><span>test RMSE (best 0.00125 after step 1)</span>' \
  '<th scope="row">Test left loss</th><td>8.0000 (best 4.0000 after step 1)</td>' \
  '<th scope="row">Test left accuracy</th><td>50.00 %</td>' \
  'aria-label="Test top-5 accuracy"' 'aria-label="Test AUC"' 'aria-label="Test R2"' \
  'aria-label="Test MAE"' 'aria-label="Test RMSE"' 'aria-label="Test left loss"' \
  'aria-label="Test left accuracy"' 'aria-label="Test &lt;img src=x&gt;"' '>test left accuracy<'
lacks metrics.html '<img|Test word'
write both.html "$work/metrics.jsonl" "$work/a.jsonl"
says both.html '<th scope="row">Test AUC</th><td>0.5000 (best 0.7500 after step 1)</td><td>–</td>'
cp "$work/metrics.jsonl" "$work/copy.jsonl"
write twice.html "$work/metrics.jsonl" "$work/copy.jsonl"
check "a metric of two runs has one chart" \
  test "$(grep -c 'aria-label="Test MAE"' "$work/twice.html")" = 1
write bare.html "$work/old.jsonl" --trace "$work/bare" --smooth 1
lacks bare.html '<script|Critical path|data:image/svg.xml'
mkdir "$work/x" "$work/y"
cp "$work/a.jsonl" "$work/x/run.jsonl"
cp "$work/b.jsonl" "$work/y/run.jsonl"
write same.html "$work/x/run.jsonl" "$work/y/run.jsonl"
says same.html "x/run.jsonl</th>" "y/run.jsonl</th>"

# losses far from 1
for loss in 4.5e-7 2.5e+30; do
  sed "s/\(\"[a-z_]*loss\": \)[0-9][0-9.e+-]*/\1$loss/" "$work/a.jsonl" >"$work/far.jsonl"
  write far.html "$work/far.jsonl"
  says far.html "<b>$(printf %.4g $loss)</b><span>test loss</span>" \
    "<b>$(printf %.4g $loss)</b><span>training loss at the end</span>"
done

# names that would be markup, move the text or are no text
program='"program": "\\u001b[31m\\u202e<img src=x onerror=alert(1)>"'
nasty=$(printf 'a<b&"c\047 \002\377')
sed '1s/"program": "lenet"/'"$program"'/; 1s/"name": "conv1"/"name": "<\/table>"/' \
  "$work/a.jsonl" >"$work/$nasty.jsonl"
write nasty.html "$work/$nasty.jsonl" --title "<script>alert('1')</script>"
says nasty.html '<title>&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</title>' \
  '&lt;img src=x onerror=alert(1)&gt;' '&lt;/table&gt;'
lacks nasty.html '<img|<script|[[:cntrl:]]'
check "and is UTF-8" iconv -f UTF-8 -t UTF-16 "$work/nasty.html"

check "the same logs give the same page" \
  sh -c "'$report' -o '$work/again.html' '$work/a.jsonl' && cmp '$work/again.html' '$work/one.html'"
cat "$work"/*.html | sed 's|xmlns="http://www.w3.org/2000/svg"||g' >"$work/all"
lacks all 'https?:|<script|<link|@import|url\(|href="[^#]|src="[^d]|nan"|[^a-z]inf"'

# ---- well-formed ----
cat >"$work/wellformed.py" <<'EOF'
# Each element is closed in the order of opening, ids are there once, and each link leads to an id.
import sys
from html.parser import HTMLParser
class Page(HTMLParser):
    void = {"meta", "br", "img", "hr", "link", "input", "col"}
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.errors = [], [], [], []
    def handle_starttag(self, tag, attrs):
        self.note(attrs)
        if tag not in self.void: self.open.append(tag)
    def handle_startendtag(self, tag, attrs):
        self.note(attrs)
    def note(self, attrs):
        for key, value in attrs:
            if key == "id": self.ids.append(value)
            if key == "href": self.links.append(value[1:])
    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.errors.append("line %d: </%s>" % (self.getpos()[0], tag))
page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
page.close()
page.errors += ["open at the end: %s" % tag for tag in page.open]
page.errors += ["twice: %s" % i for i in set(page.ids) if page.ids.count(i) > 1]
page.errors += ["leads nowhere: %s" % link for link in page.links if link not in page.ids]
if not page.ids: page.errors.append("no sections")
sys.exit("\n".join(page.errors[:5]) if page.errors else 0)
EOF
for page in one two resumed killed ends bare nasty metrics both; do
  if python3 -c 'import html.parser' 2>/dev/null; then
    check "$page.html is well-formed" python3 "$work/wellformed.py" "$work/$page.html"
  else
    skip "$page.html is well-formed" "no python3 to parse it"
  fi
done

# ---- in a browser ----
browser=
for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
  command -v "$name" >/dev/null 2>&1 && browser=$name && break
done
# browse SECONDS ARGUMENTS...: with its own profile; may be slow on a busy machine
browse() {
  timeout -k 5 120 env -u LD_LIBRARY_PATH HOME="$work" "$browser" --headless --no-sandbox \
    --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars \
    --user-data-dir="$work/profile" "$@" 2>"$work/err"
}
# looked_at PAGE OPTIONS...: the page in two frames, 1200 and 400 pixels wide, and the sizes that a
# script around them measures
looked_at() {
  file=$1; shift
  { echo '<!DOCTYPE html><html><body>'
    for width in 1200 400; do
      printf '<iframe width="%d" height="900" style="border:0" srcdoc="' $width
      sed 's/&/\&amp;/g; s/"/\&quot;/g' "$work/$file"
      echo '"></iframe>'
    done
    cat <<'EOF'
<pre id="result"></pre>
<script>
onload = () => {
  let lines = "";
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument;
    const say = (text) => lines += `width ${frame.width}: ${text}\n`;
    const box = (e) => e.getBoundingClientRect();
    const all = (what) => [...page.querySelectorAll(what)];
    const sections = all("section").map((s) => s.id).join(" ");
    say(`page ${page.documentElement.scrollWidth}, sections ${sections}`);
    const charts = all(".chart svg");
    const shown = charts.filter((s) => box(s).width > 300 && box(s).height > 150);
    say(`charts ${charts.length}, shown ${shown.length}`);
    const curves = all(".chart polyline[stroke-width='1.8']");
    say(`curves shown ${curves.filter((l) => box(l).width > 50).length}`);
    say(`letters ${Math.min(...all(".chart text").map((t) => box(t).height))}`);
    const loaded = all("img").filter((i) => i.complete && i.naturalWidth > 0);
    say(`pictures ${loaded.filter((i) => box(i).width > 300).length}`);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const paper = getComputedStyle(page.body).backgroundColor;
    const ink = getComputedStyle(page.querySelector(".chart text")).fill;
    say(`dark ${dark}, paper ${paper}, ink ${ink}`);
  }
  document.getElementById("result").textContent = lines;
};
</script></body></html>
EOF
  } >"$work/frames.html"
  browse "$@" --dump-dom "file://$work/frames.html" |
    sed -n '/<pre id="result">/,/<\/pre>/p' | sed 's/<[^>]*>//g' >"$work/seen"
}
# seen NAME PATTERN [RELATED]: a measured line matches; otherwise the lines about it are shown
seen() {
  if grep -qE -e "$2" "$work/seen"; then
    ok "$1"
  else
    not_ok "$1: $(grep -E "${3:-.}" "$work/seen" | head -n 3 | tr '\n' ';')"
  fi
}
bytes() { wc -c <"$1" 2>/dev/null || echo 0; }
picture() { browse --window-size=1200,900 --screenshot="$work/$1.png" "$2" >/dev/null; }
if [ -z "$browser" ]; then
  skip "the pages in a browser" "no chromium here: the pages were not rendered"
elif ! browse --dump-dom about:blank | grep -q '<body>'; then
  skip "the pages in a browser" "$browser does not start here: $(head -n 1 "$work/err")"
else
  for page in one two ends nasty metrics; do
    looked_at $page.html
    sections='summary curves course devices placement settings'
    case $page in ends | metrics) ;; *)
      sections='summary curves course confusion devices placement settings' ;;
    esac
    [ $page = two ] && sections="$sections trace-1"
    for width in 1200 400; do
      at="width $width"
      seen "$page.html, $width pixels: no wider than that, with all sections" \
        "^$at: page $width, sections $sections\$" "$at: page"
      charts=4; [ $page = ends ] && charts=5; [ $page = metrics ] && charts=11
      seen "$page.html, $width pixels: $charts charts" \
        "^$at: charts $charts, shown $charts\$" "$at: charts"
      seen "$page.html, $width pixels: letters can be read" \
        "^$at: letters ([89]|[1-9][0-9])" "$at: letters"
    done
    curves=3; [ $page = two ] && curves=6; [ $page = ends ] && curves=13
    seen "$page.html: $curves curves" "^width 1200: curves shown $curves\$" "curves"
    [ $page != two ] || seen "$page.html: the trace's picture" "^width 400: pictures 1\$" "pictures"
    seen "$page.html: light" \
      "^width 1200: dark false, paper rgb\(255, 255, 255\), ink rgb\(51, 51, 51\)" "dark"
  done
  looked_at two.html --blink-settings=preferredColorScheme=0
  if grep -q "dark true" "$work/seen"; then
    seen "two.html: dark where the reader's system is" \
      "^width 1200: dark true, paper rgb\(20, 23, 26\), ink rgb\(201, 208, 214\)" "dark"
  else
    skip "two.html: dark where the reader's system is" "this $browser has no setting for dark"
  fi
  picture blank about:blank; picture two "file://$work/two.html"
  blank=$(bytes "$work/blank.png") two=$(bytes "$work/two.png")
  if [ "$blank" -gt 100 ] && [ "$two" -gt $((4 * blank)) ]; then
    ok "a picture of the page is not blank: $two bytes, blank $blank"
  else
    not_ok "a picture of the page is blank: $two bytes, blank $blank"
  fi
fi

# ---- bad input: one line, and an older page stays ----
echo old >"$work/refused.html"
# refused CODE TEXT ARGUMENTS...
refused() {
  code=$1 text=$2; shift 2
  "$report" -o "$work/refused.html" "$@" >"$work/out" 2>"$work/err"; got=$?
  if [ "$got" = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$text" "$work/err" &&
    [ ! -s "$work/out" ] && [ "$(cat "$work/refused.html")" = old ]; then
    ok "$(sed "s|$work/||g" "$work/err")"
  else
    not_ok "$*: exit code $got, not $code with $text"
  fi
}
a=$work/a.jsonl
head -c 1000 "$a" >"$work/short.jsonl"
refused 1 "short.jsonl:1: not JSON" "$work/short.jsonl"
{ cat "$a"; printf '{"step": 12, "lo'; } >"$work/half.jsonl"
refused 1 "was the log cut short?" "$a" "$work/half.jsonl"
sed '1s/"version": 1/"version": 7/' "$a" >"$work/newer.jsonl"
refused 1 "newer.jsonl:1: the log is of version 7 (by Starling" "$work/newer.jsonl"
if grep -q "reads up to version 1" "$work/err"; then
  ok "both versions are named"
else
  not_ok "only one version is named"
fi
{ cat "$a"; sed -n '1s/"version": 1/"version": 7/p' "$a"; } >"$work/later.jsonl"
refused 1 "later.jsonl:17: the log is of version 7" "$work/later.jsonl"
head -n 1 "$a" >"$work/begun.jsonl"
refused 1 "begun.jsonl: holds no training step" "$work/begun.jsonl"
: >"$work/empty.jsonl"
refused 1 "empty.jsonl: holds no training step" "$work/empty.jsonl"
refused 1 "two.html:1: not JSON" "$work/two.html"
head -c 2000 /dev/urandom >"$work/noise.jsonl"
refused 1 "noise.jsonl:1: not JSON" "$work/noise.jsonl"
refused 1 "nowhere.jsonl: cannot be opened" "$work/nowhere.jsonl"
refused 1 "cannot be read" "$work"
refused 1 "empty/trace.json: cannot be opened" "$a" --trace "$work/empty"
mkdir "$work/t7" "$work/tcut" "$work/tother"
sed 's/"version": 1/"version": 7/' "$work/trace/trace.json" >"$work/t7/trace.json"
refused 1 "t7/trace.json: is of version 7 (by Starling 0.1.0)" "$a" --trace "$work/t7"
head -c 270 "$work/trace/trace.json" >"$work/tcut/trace.json"
refused 1 "tcut/trace.json:4: not JSON" "$a" --trace "$work/tcut"
echo '[]' >"$work/tother/trace.json"
refused 1 "tother/trace.json: is no Starling trace" "$a" --trace "$work/tother"
refused 2 "no log is named"
refused 2 "--smooth" --smooth 0 "$a"
refused 1 "no/x.html: cannot be written" -o "$work/no/x.html" "$a"
mkdir "$work/folder.html"
refused 1 "folder.html: cannot be written" -o "$work/folder.html" "$a"
rmdir "$work/folder.html"
cp "$a" "$work/kept"
refused 2 "a.jsonl: the name must end in .html or .htm" -o "$a" "$work/b.jsonl"
refused 2 "a.jsonl: would overwrite $a" -o "$a" "$a"
ln "$a" "$work/linked.htm"
refused 2 "linked.htm: would overwrite $a" -o "$work/linked.htm" "$work/b.jsonl" "$a"
check "and the log is left" cmp -s "$a" "$work/kept"
check "--help ends with the exit status" sh -c "'$report' --help | grep -q 'Exit status'"
set -- "$work"/*.html.*
if [ -e "$1" ]; then not_ok "left behind: $*"; else ok "no page is left half-written"; fi

echo "1..$n"
exit $failed
