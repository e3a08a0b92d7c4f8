/* The results of each run, and its course: starts, changes between them, checkpoints, the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/memory_text.h"
#include "tools/common/metric_names.h"
#include "tools/report/html.h"
#include "tools/report/page.h"

/* ---- one fact of one run, as text; an unknown fact is empty ---- */

struct view {
  const struct run_curves *run;
  const struct facts *facts;
  const char *metric; /* of tell_metric: its key */
};

/* "2026-11-21 19:31:31 UTC" for "2026-11-21T19:31:31Z"; other texts stay as they are. */
static void write_time(FILE *out, const char *time) {
  if (time && strlen(time) == 20 && time[10] == 'T' && time[19] == 'Z')
    fprintf(out, "%.10s %.8s UTC", time, time + 11);
  else if (time)
    fputs(time, out);
}

static void tell_program(FILE *out, const struct view *v) {
  const char *program = text_at(v->facts->start, "program");
  if (program) fputs(program, out);
}

static void tell_time(FILE *out, const struct view *v) {
  write_time(out, text_at(v->facts->begin, "time"));
}

static void tell_machine(FILE *out, const struct view *v) {
  const json_t *start = v->facts->start;
  const char *host = text_at(start, "host"), *processor = text_at(start, "processor");
  double cores = number_at(start, "cores");
  if (host) fputs(host, out);
  if (processor) fprintf(out, "%s%s", host ? ", " : "", processor);
  if (cores > 0) fprintf(out, ", %.0f core%s", cores, cores == 1 ? "" : "s");
}

static void tell_ranks(FILE *out, const struct view *v) {
  double ranks = number_at(v->facts->start, "ranks");
  if (ranks > 1) fprintf(out, "rank %.0f of %.0f", number_at(v->facts->start, "rank"), ranks);
}

static void tell_runtime(FILE *out, const struct view *v) {
  const char *version = text_at(v->facts->start, "starpu");
  const char *scheduler = text_at(v->facts->start, "scheduler");
  if (version) fprintf(out, "StarPU %s", version);
  if (scheduler) fprintf(out, "%sscheduler %s", version ? ", " : "", scheduler);
}

static void tell_data(FILE *out, const struct view *v) {
  char text[64];
  const json_t *data = json_object_get(v->facts->start, "data");
  const char *name = text_at(data, "name");
  double samples = number_at(data, "train_samples");
  if (name) fputs(name, out);
  if (samples >= 0) fprintf(out, ": %s samples", grouped(samples, text, sizeof text));
}

static void tell_parameters(FILE *out, const struct view *v) {
  char text[64];
  double count = number_at(json_object_get(v->facts->start, "model"), "parameters");
  if (count >= 0) fputs(grouped(count, text, sizeof text), out);
}

static void tell_steps(FILE *out, const struct view *v) {
  char text[64];
  double planned = number_at(json_object_get(v->facts->start, "options"), "steps");
  fputs(grouped(v->facts->steps, text, sizeof text), out);
  if (planned > v->facts->steps) fprintf(out, " of %s", grouped(planned, text, sizeof text));
}

static void tell_loss(FILE *out, const struct view *v) {
  char text[64];
  fputs(metric_value("loss", v->facts->loss, text, sizeof text), out);
}

/* " (best 0.0231 after step 700)", if the best value is not the last one. */
static void tell_best(FILE *out, const char *key, double best, double at, double last) {
  char text[64];
  if (best == last) return;
  fprintf(out, " (best %s", metric_value(key, best, text, sizeof text));
  fprintf(out, " after step %s)", grouped(at, text, sizeof text));
}

static void tell_test_loss(FILE *out, const struct view *v) {
  const struct facts *f = v->facts;
  char text[64];
  if (isnan(f->test_loss)) return;
  fputs(metric_value("loss", f->test_loss, text, sizeof text), out);
  tell_best(out, "loss", f->best_test_loss, f->best_loss_at, f->test_loss);
}

static void tell_accuracy(FILE *out, const struct view *v) {
  const struct facts *f = v->facts;
  if (isnan(f->accuracy)) return;
  fprintf(out, "%.2f %%", 100 * f->accuracy);
  tell_best(out, "accuracy", f->best_accuracy, f->best_accuracy_at, f->accuracy);
}

static void tell_metric(FILE *out, const struct view *v) {
  const struct series *series = curves_metric(v->run, v->metric);
  double last, best, at;
  char text[64];
  if (!series) return;
  find_best(series, !metric_kind(v->metric).larger, &last, &best, &at);
  fputs(metric_value(v->metric, last, text, sizeof text), out);
  tell_best(out, v->metric, best, at, last);
}

static void tell_perplexity(FILE *out, const struct view *v) {
  const struct facts *f = v->facts;
  char text[64];
  if (!v->run->tokens || isnan(f->test_loss)) return;
  fputs(metric_value("perplexity", exp(f->test_loss), text, sizeof text), out);
  if (f->best_test_loss != f->test_loss)
    tell_best(out, "perplexity", exp(f->best_test_loss), f->best_loss_at, exp(f->test_loss));
}

static void tell_rate(FILE *out, const struct view *v) {
  char text[64];
  if (!isnan(v->facts->rate))
    fprintf(out, "%s %s/s", grouped(v->facts->rate, text, sizeof text), v->run->unit);
}

static void tell_seconds(FILE *out, const struct view *v) {
  char text[64];
  if (v->facts->seconds >= 0) fputs(time_text(v->facts->seconds, text, sizeof text), out);
}

static void tell_end(FILE *out, const struct view *v) {
  const char *end = text_at(v->facts->end, "end"), *message = text_at(v->facts->end, "message");
  if (end)
    fprintf(out, "%s%s%s", end, message ? ": " : "", message ? message : "");
  else if (v->facts->start)
    fputs("not in the log: killed, or still at work", out);
}

static void tell_checkpoints(FILE *out, const struct view *v) {
  if (v->facts->checkpoints) fprintf(out, "%d", v->facts->checkpoints);
}

static void tell_producer(FILE *out, const struct view *v) {
  const char *producer = text_at(v->facts->start, "producer");
  fputs(producer ? producer : "a version that did not say", out);
}

struct fact {
  const char *name;
  void (*tell)(FILE *out, const struct view *view);
  bool tile; /* a single run has this fact in large letters above */
};

static const struct fact facts[] = {{"Program", tell_program, false},
                                    {"Began", tell_time, false},
                                    {"Ended", tell_end, false},
                                    {"Time", tell_seconds, true},
                                    {"Steps", tell_steps, false},
                                    {"Training loss at the end", tell_loss, true},
                                    {"Test loss", tell_test_loss, true},
                                    {"Test accuracy", tell_accuracy, true},
                                    {"Test metrics", tell_metric, true}, /* a row for each */
                                    {"Perplexity", tell_perplexity, true},
                                    {"Throughput (median)", tell_rate, true},
                                    {"Checkpoints", tell_checkpoints, false},
                                    {"Data", tell_data, false},
                                    {"Parameters", tell_parameters, false},
                                    {"Machine", tell_machine, false},
                                    {"Ranks", tell_ranks, false},
                                    {"Runtime", tell_runtime, false},
                                    {"Log written by", tell_producer, false}};

/* The caller frees it. NULL: unknown, or no memory (html_lacks_memory). */
static char *fact_text(const struct fact *fact, const struct view *view) {
  struct memory_text stream;
  if (memory_text_begin(&stream)) fact->tell(stream.out, view);
  char *text = memory_text_end(&stream, NULL);
  if (!text) html_lacks_memory();
  if (text && *text) return text;
  free(text);
  return NULL;
}

/* ---- the summary ---- */

/* metric: of tell_metric, else NULL. */
static void write_fact(FILE *out, const struct report *report, const struct fact *fact,
                       const char *metric) {
  bool known = false;
  char **texts = calloc(report->count, sizeof *texts);
  if (!texts) html_lacks_memory();
  for (size_t i = 0; texts && i < report->count; i++) {
    texts[i] = fact_text(fact, &(struct view){&report->runs[i], &report->facts[i], metric});
    known |= texts[i] != NULL;
  }
  if (known) {
    fputs("<tr>", out);
    html_element(out, "th scope=\"row\"", NULL, "%s", fact->name);
    for (size_t i = 0; i < report->count; i++)
      html_element(out, "td", NULL, "%s", texts[i] ? texts[i] : "\u2013");
    fputs("</tr>\n", out);
  }
  for (size_t i = 0; texts && i < report->count; i++) free(texts[i]);
  free(texts);
}

/* The name of a metric of one of several outputs, of which there may be many, has a dot. */
static bool is_of_output(const char *metric) { return strchr(metric, '.') != NULL; }

/* A row for each metric; of a single run those without a tile. */
static void write_metrics(FILE *out, const struct report *report) {
  char name[160], title[200];
  const char *key;
  for (size_t run = 0, metric = 0; (key = report_next_metric(report, &run, &metric)) != NULL;) {
    snprintf(title, sizeof title, "Test %s", metric_name(key, name, sizeof name));
    if (report->count > 1 || is_of_output(key))
      write_fact(out, report, &(struct fact){title, tell_metric, true}, key);
  }
}

static void write_tile(FILE *out, const struct view *view, const char *name,
                       void (*tell)(FILE *, const struct view *), bool bad) {
  char *text = fact_text(&(struct fact){name, tell, true}, view);
  char *rest = text ? strstr(text, " (best") : NULL;
  if (rest) *rest = '\0';
  if (text) {
    fputs("<div class=\"tile\">", out);
    html_element(out, "b", bad ? "bad" : NULL, "%s", text);
    if (rest)
      html_element(out, "span", NULL, "%s (%s", name, rest + 2);
    else
      html_element(out, "span", NULL, "%s", name);
    fputs("</div>\n", out);
  }
  free(text);
}

static void tell_how(FILE *out, const struct view *v) {
  const char *end = text_at(v->facts->end, "end");
  if (v->facts->start) fputs(end ? end : "no end in the log", out);
}

static void write_metric_tiles(FILE *out, const struct view *view) {
  char name[160], title[200];
  for (size_t i = 0; i < view->run->metric_count; i++) {
    const char *key = view->run->metrics[i].key;
    snprintf(title, sizeof title, "test %s", metric_name(key, name, sizeof name));
    if (!is_of_output(key))
      write_tile(out, &(struct view){view->run, view->facts, key}, title, tell_metric, false);
  }
}

/* The numbers of a single run, in large letters. */
static void write_tiles(FILE *out, const struct view *view) {
  const char *end = text_at(view->facts->end, "end");
  fputs("<div class=\"tiles\">\n", out);
  write_tile(out, view, "perplexity", tell_perplexity, false);
  write_tile(out, view, "test accuracy", tell_accuracy, false);
  write_metric_tiles(out, view);
  write_tile(out, view, "test loss", tell_test_loss, false);
  write_tile(out, view, "training loss at the end", tell_loss, false);
  write_tile(out, view, "throughput, median", tell_rate, false);
  write_tile(out, view, "time", tell_seconds, false);
  write_tile(out, view, "how it ended", tell_how, !end || strcmp(end, "done") != 0);
  fputs("</div>\n", out);
}

void report_run_name(FILE *out, const struct report *report, size_t run) {
  fprintf(out, "<span class=\"chip c%zu\"></span>", run % 7);
  html_text(out, "%s", report->runs[run].label);
}

void report_summary(FILE *out, const struct report *report) {
  fputs("<section id=\"summary\"><h2>Summary</h2>\n", out);
  if (report->count == 1) write_tiles(out, &(struct view){report->runs, report->facts, NULL});
  html_table_begin(out, report->count > 1 ? "facts compared" : "facts");
  if (report->count > 1) {
    fputs("<thead><tr><td></td>", out);
    for (size_t i = 0; i < report->count; i++) {
      fputs("<th scope=\"col\">", out);
      report_run_name(out, report, i);
      fputs("</th>", out);
    }
    fputs("</tr></thead>", out);
  }
  fputs("<tbody>\n", out);
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
    if (facts[i].tell == tell_metric)
      write_metrics(out, report);
    else if (report->count > 1 || !facts[i].tile)
      write_fact(out, report, &facts[i], NULL);
  }
  html_table_end(out);
  fputs("</section>\n", out);
}

/* ---- the course ---- */

static void write_change(FILE *out, const char *name, const json_t *from, const json_t *to) {
  char *before = value_text(from), *after = value_text(to);
  if (!before || !after) html_lacks_memory();
  html_text(out, "; %s %s \u2192 %s", name, before ? before : "?", after ? after : "?");
  free(before);
  free(after);
}

/* Writes the options that differ between a process that resumed the run and the process before. */
static void write_changes(FILE *out, const json_t *before, const json_t *now) {
  static const char *const own[] = {"producer", "host", "ranks", "scheduler", "starpu"};
  const json_t *old = json_object_get(before, "options"), *new = json_object_get(now, "options");
  const char *key;
  json_t *value;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    const json_t *from = json_object_get(before, own[i]), *to = json_object_get(now, own[i]);
    if (!json_equal(from, to)) write_change(out, own[i], from, to);
  }
  json_object_foreach((json_t *)new, key, value) {
    const json_t *from = json_object_get(old, key);
    if (strcmp(key, "resume") != 0 && !json_equal(from, value)) write_change(out, key, from, value);
  }
}

static void write_start(FILE *out, const json_t *before, const json_t *now) {
  char text[64];
  double from = number_at(now, "from");
  html_element(out, "td", "num", "%s", grouped(number_at(now, "after"), text, sizeof text));
  html_element(out, "td", NULL, "%s", before || from > 0 ? "taken over" : "began");
  fputs("<td>", out);
  char *time = fact_text(&(struct fact){"", tell_time, false},
                         &(struct view){NULL, &(struct facts){.begin = now}, NULL});
  html_text(out, "%s", time ? time : "");
  free(time);
  if (from > 0) html_text(out, ", going on after step %s", grouped(from, text, sizeof text));
  if (before) write_changes(out, before, now);
  fputs("</td>", out);
}

/* start: the first line of the process that ended, or NULL. */
static void write_end(FILE *out, const json_t *end, const json_t *start) {
  const char *unit = text_at(json_object_get(start, "data"), "unit");
  char text[64];
  double seconds = number_at(end, "seconds"), rate = number_at(end, "samples_per_s");
  const char *message = text_at(end, "message");
  html_element(out, "td", "num", "%s", grouped(number_at(end, "after"), text, sizeof text));
  html_element(out, "td", strcmp(text_at(end, "end"), "failed") == 0 ? "bad" : NULL, "%s",
               text_at(end, "end"));
  fputs("<td>", out);
  if (seconds >= 0) html_text(out, "after %s", time_text(seconds, text, sizeof text));
  if (rate >= 0)
    html_text(out, ", %s %s/s in training", grouped(rate, text, sizeof text),
              unit ? unit : "samples");
  if (message) html_text(out, ": %s", message);
  fputs("</td>", out);
}

static void write_resumed(FILE *out, const json_t *note) {
  char text[64];
  html_element(out, "td", "num", "%s", grouped(number_at(note, "after"), text, sizeof text));
  html_element(out, "td", NULL, "resumed");
  html_element(out, "td", NULL, "from %s", text_at(note, "resumed"));
}

static void write_events(FILE *out, const json_t *notes) {
  const json_t *before = NULL;
  size_t i;
  json_t *note;
  json_array_foreach((json_t *)notes, i, note) {
    bool start = json_object_get(note, "format") != NULL;
    if (!start && !text_at(note, "end") && !text_at(note, "resumed")) continue;
    fputs("<tr>", out);
    if (start)
      write_start(out, before, note);
    else if (text_at(note, "end"))
      write_end(out, note, before);
    else
      write_resumed(out, note);
    fputs("</tr>\n", out);
    if (start) before = note;
  }
}

static void write_checkpoints(FILE *out, const struct facts *facts) {
  char text[64];
  if (!facts->checkpoints) return;
  fputs("<tr>", out);
  html_element(out, "td", "num", "%s",
               isnan(facts->checkpoint_at) ? "" : grouped(facts->checkpoint_at, text, sizeof text));
  html_element(out, "td", NULL, "%d checkpoint%s", facts->checkpoints,
               facts->checkpoints == 1 ? "" : "s");
  fputs("<td>the last one after that step", out);
  if (facts->bytes >= 0) html_text(out, "; %.1f MB", 1e-6 * facts->bytes);
  if (facts->stopped >= 0)
    html_text(out, "; training stood still for %s", time_text(facts->stopped, text, sizeof text));
  if (facts->write >= 0)
    html_text(out, "; written in %s", time_text(facts->write, text, sizeof text));
  fputs(" (medians)</td></tr>\n", out);
}

void report_course(FILE *out, const struct report *report) {
  static const char *const titles[] = {"#Step", "What", "Details", NULL};
  bool any = false;
  for (size_t i = 0; i < report->count; i++) any |= json_array_size(report->runs[i].notes) > 0;
  if (!any) return;
  fputs("<section id=\"course\"><h2>Course</h2>\n", out);
  for (size_t i = 0; i < report->count; i++) {
    if (!json_array_size(report->runs[i].notes)) continue;
    if (report->count > 1) {
      fputs("<h3>", out);
      report_run_name(out, report, i);
      fputs("</h3>\n", out);
    }
    html_table_begin(out, "course");
    html_titles(out, titles);
    write_events(out, report->runs[i].notes);
    write_checkpoints(out, &report->facts[i]);
    html_table_end(out);
  }
  fputs("</section>\n", out);
}
