#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "core/base/json.h"
#include "tools/common/output.h"
#include "tools/trace/text_report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

static const char *const pass_names[] = {"forward", "backward data", "backward weight", "update",
                                         "message"};

static double length_of(const struct trace_task *t) { return t->end - t->start; }

size_t report_longest(const struct trace *trace, long *tasks) {
  size_t count = 0;
  for (size_t i = 0; i < trace->count; i++) {
    double ms = length_of(&trace->tasks[i]);
    size_t at = count;
    while (at && length_of(&trace->tasks[tasks[at - 1]]) < ms) at--;
    if (at == LONGEST) continue;
    if (count < LONGEST) count++;
    memmove(tasks + at + 1, tasks + at, (count - 1 - at) * sizeof *tasks);
    tasks[at] = (long)i;
  }
  return count;
}

/* The name of a memory node beyond main memory: of the GPU whose memory it is, or a number for the
 * memory of another process. "": main memory. */
static void name_node(const struct trace *trace, const struct trace_worker *worker, char *text,
                      size_t size) {
  text[0] = '\0';
  for (int i = 0; i < trace->worker_count && worker->node && !*text; i++) {
    const struct trace_worker *owner = &trace->workers[i];
    if (owner->node != worker->node || owner->rank != worker->rank) continue;
    if (owner->is_cpu)
      snprintf(text, size, "node %d", worker->node);
    else
      snprintf(text, size, "%s's memory", owner->name);
  }
}

const char *report_node(const struct trace *trace, const struct trace_worker *worker, char *text,
                        size_t size) {
  char name[80];
  name_node(trace, worker, name, sizeof name);
  if (worker->rank < 0)
    snprintf(text, size, "%s", *name ? name : "RAM");
  else
    snprintf(text, size, "rank %d, %s", worker->rank, *name ? name : "RAM");
  return text;
}

/* ---- text ---- */

/* Lists the layers whose tasks ran on a worker; the optimizer's tasks do not count. */
static void print_layers(const struct trace *trace, int worker, FILE *out) {
  for (int l = 0; l < trace->layer_count; l++)
    for (size_t i = 0; i < trace->count; i++) {
      const struct trace_task *t = &trace->tasks[i];
      if (t->worker != worker || t->layer != l || t->pass == PASS_UPDATE) continue;
      fprintf(out, " %s", trace->layers[l]);
      break;
    }
}

static void print_summary(const struct report *r, FILE *out) {
  const struct trace *t = r->trace;
  const struct numbers *n = r->numbers;
  int used = 0;
  fprintf(out, "window  %.3f ms, %zu tasks", t->window, t->count);
  if (r->window->known)
    fprintf(out, ", steps %ld-%ld: %.3f ms each (wall time %.3f ms)", r->window->first,
            r->window->last, t->window / (double)(r->window->last - r->window->first + 1),
            r->window->wall_ms);
  fputc('\n', out);
  for (int w = 0; w < t->worker_count; w++) {
    double busy = n->devices[w].ms[STATE_BUSY];
    if (!n->devices[w].tasks) continue;
    used++;
    fprintf(out, "worker %-3d %8zu tasks  busy %10.3f ms  %5.1f %% ", t->workers[w].number,
            n->devices[w].tasks, busy, 100 * busy / t->window);
    print_layers(t, w, out);
    fputc('\n', out);
  }
  fprintf(out, "bubble  %.1f %% of %d workers\n", 100 * n->bubble, used);
  fprintf(out, "overlap %.1f %% of the window: two or more workers at once\n", 100 * n->together);
  if (r->stages)
    fprintf(out, "theory  %.1f %% for GPipe and 1F1B: (p - 1) / (m + p - 1), p = %d, m = %d\n",
            100.0 * (r->stages - 1) / (r->microbatches + r->stages - 1), r->stages,
            r->microbatches);
  if (n->transfer_ms > 0)
    fprintf(out,
            "moves   %.1f %% of the window: tensors on their way between memories or ranks; in "
            "%.1f %% of that time tasks ran\n",
            100 * n->transfer_ms / t->window, 100 * n->communication);
  if (t->flushed)
    fprintf(out,
            "note    StarPU wrote out its trace during the recording, which took time: give "
            "STARPU_TRACE_BUFFER_SIZE more MB, or record fewer steps\n");
}

static void print_devices(const struct report *r, FILE *out) {
  const struct trace *t = r->trace;
  char node[80];
  if (!t->has_states) return;
  fprintf(out, "\n%-16s %-20s %8s %10s %10s %10s %10s\n", "device", "memory", "tasks", "busy",
          "transfer", "overhead", "idle");
  for (int w = 0; w < t->worker_count; w++) {
    const struct device_numbers *d = &r->numbers->devices[w];
    fprintf(out, "%-16s %-20s %8zu", t->workers[w].name,
            report_node(t, &t->workers[w], node, sizeof node), d->tasks);
    for (int s = 0; s < STATES; s++) fprintf(out, " %8.1f %%", 100 * d->ms[s] / t->window);
    fputc('\n', out);
  }
}

static void print_layer_table(const struct report *r, FILE *out) {
  fprintf(out, "\n%-20s %10s %14s %16s %10s %10s %8s\n", "layer (ms)", "forward", "backward data",
          "backward weight", "update", "GFLOP/s", "of roof");
  for (int l = 0; l < r->trace->layer_count; l++) {
    const struct layer_numbers *n = &r->numbers->layers[l];
    fprintf(out, "%-20s %10.3f %14.3f %16.3f %10.3f", r->trace->layers[l], n->ms[PASS_FORWARD],
            n->ms[PASS_BACKWARD_DATA], n->ms[PASS_BACKWARD_WEIGHT], n->ms[PASS_UPDATE]);
    if (isnan(n->gflops))
      fprintf(out, " %10s", "-");
    else
      fprintf(out, " %10.1f", n->gflops);
    if (isnan(n->share))
      fprintf(out, " %8s\n", "-");
    else
      fprintf(out, " %6.1f %%\n", 100 * n->share);
  }
  if (r->roof->gflops > 0)
    fprintf(out, "roof: %.1f GFLOP/s, one CPU core%s", r->roof->gflops,
            r->roof->gigabytes > 0 ? "; " : "\n");
  if (r->roof->gigabytes > 0)
    fprintf(out, "%s%.1f GB/s, each of a task's tensors counted once\n",
            r->roof->gflops > 0 ? "" : "roof: ", r->roof->gigabytes);
  if (r->roof->gflops <= 0 && r->roof->gigabytes <= 0)
    fprintf(out, "roof: unknown (--peak GFLOPS of one CPU core, --bandwidth GB/S)\n");
}

/* Returns false without memory. */
static bool print_path(const struct report *r, FILE *out) {
  const struct trace *t = r->trace;
  const struct numbers *n = r->numbers;
  double *ms = calloc((size_t)t->layer_count, sizeof *ms);
  bool fine = ms != NULL;
  if (!fine || !n->path_count) {
    free(ms);
    return fine;
  }
  for (size_t i = 0; i < n->path_count; i++) {
    const struct trace_task *task = &t->tasks[n->path[i]];
    ms[task->layer] += length_of(task);
  }
  fprintf(out, "\ncritical path  %.3f ms, %.1f %% of the window, %zu tasks:", n->path_ms,
          100 * n->path_ms / t->window, n->path_count);
  for (int printed = 0; printed < t->layer_count; printed++) {
    int most = 0;
    for (int l = 1; l < t->layer_count; l++)
      if (ms[l] > ms[most]) most = l;
    if (ms[most] <= 0) break;
    fprintf(out, "%s %s %.1f %%", printed ? "," : "", t->layers[most], 100 * ms[most] / n->path_ms);
    ms[most] = 0;
  }
  fputc('\n', out);
  free(ms);
  return true;
}

static void print_longest(const struct trace *t, FILE *out) {
  long longest[LONGEST + 1];
  size_t count = report_longest(t, longest);
  fprintf(out, "\n%-36s %-16s %6s %12s %10s\n", "longest tasks", "on", "step", "at ms", "ms");
  for (size_t i = 0; i < count; i++) {
    const struct trace_task *task = &t->tasks[longest[i]];
    fprintf(out, "%-36s %-16s %6ld %12.3f %10.3f\n", task->name, t->workers[task->worker].name,
            task->step, task->start, length_of(task));
  }
}

bool report_print(const struct report *report, FILE *out) {
  print_summary(report, out);
  print_devices(report, out);
  print_layer_table(report, out);
  if (!print_path(report, out)) return false;
  print_longest(report->trace, out);
  return true;
}

/* ---- JSON ---- */

static double rounded(double ms) { return round(ms * 1e4) / 1e4; }

static json_t *known(double value) {
  return isnan(value) ? json_null() : json_real(rounded(value));
}

static json_t *devices_json(const struct report *r) {
  const struct trace *t = r->trace;
  json_t *list = json_array();
  char node[80];
  for (int w = 0; w < t->worker_count; w++) {
    const struct device_numbers *d = &r->numbers->devices[w];
    double unknown = t->has_states ? 0 : NAN;
    sl__json_append(&list, json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:I}", "worker",
                                     t->workers[w].number, "name", t->workers[w].name, "node",
                                     report_node(t, &t->workers[w], node, sizeof node), "busy_ms",
                                     known(d->ms[STATE_BUSY]), "transfer_ms",
                                     known(d->ms[STATE_TRANSFER] + unknown), "overhead_ms",
                                     known(d->ms[STATE_OVERHEAD] + unknown), "idle_ms",
                                     known(d->ms[STATE_IDLE]), "tasks", (json_int_t)d->tasks));
  }
  return list;
}

static json_t *layers_json(const struct report *r) {
  json_t *list = json_array();
  for (int l = 0; l < r->trace->layer_count; l++) {
    const struct layer_numbers *n = &r->numbers->layers[l];
    sl__json_append(
        &list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", r->trace->layers[l],
                         "forward_ms", known(n->ms[PASS_FORWARD]), "backward_ms",
                         known(n->ms[PASS_BACKWARD_DATA] + n->ms[PASS_BACKWARD_WEIGHT]),
                         "backward_data_ms", known(n->ms[PASS_BACKWARD_DATA]), "backward_weight_ms",
                         known(n->ms[PASS_BACKWARD_WEIGHT]), "update_ms", known(n->ms[PASS_UPDATE]),
                         "gflops", known(n->gflops), "roofline_share", known(n->share)));
  }
  return list;
}

static json_t *path_json(const struct report *r) {
  const struct numbers *n = r->numbers;
  json_t *tasks = json_array();
  for (size_t i = 0; i < n->path_count; i++) {
    const struct trace_task *t = &r->trace->tasks[n->path[i]];
    sl__json_append(&tasks, json_pack("{s:s, s:f}", "name", t->name, "ms", rounded(length_of(t))));
  }
  return json_pack("{s:f, s:f, s:o}", "ms", rounded(n->path_ms), "share",
                   rounded(n->path_ms / r->trace->window), "tasks", tasks);
}

static json_t *longest_json(const struct trace *trace) {
  long longest[LONGEST + 1];
  size_t count = report_longest(trace, longest);
  json_t *list = json_array();
  for (size_t i = 0; i < count; i++) {
    const struct trace_task *t = &trace->tasks[longest[i]];
    sl__json_append(
        &list, json_pack("{s:s, s:s, s:s, s:i, s:I, s:f, s:f}", "name", t->name, "layer",
                         trace->layers[t->layer], "pass", pass_names[t->pass], "worker",
                         trace->workers[t->worker].number, "step", (json_int_t)t->step, "start_ms",
                         rounded(t->start), "ms", rounded(length_of(t))));
  }
  return list;
}

int report_write_json(const struct report *r, const char *path) {
  const struct trace *t = r->trace;
  const struct window *w = r->window;
  json_t *root = json_pack(
      "{s:s, s:i, s:s, s:f, s:o, s:o, s:I, s:o, s:o, s:o, s:f, s:{s:f, s:o}, s:o}", "format",
      "starling trace", "version", 1, "producer", "Starling " PACKAGE_VERSION, "window_ms",
      rounded(t->window), "wall_ms", w->known ? json_real(rounded(w->wall_ms)) : json_null(),
      "steps",
      w->known ? json_pack("[I, I]", (json_int_t)w->first, (json_int_t)w->last) : json_null(),
      "tasks", (json_int_t)t->count, "devices", devices_json(r), "layers", layers_json(r),
      "critical_path", path_json(r), "bubble_share", rounded(r->numbers->bubble), "overlap",
      "compute_share", rounded(r->numbers->together), "communication_share",
      known(r->numbers->communication), "longest", longest_json(t));
  if (!root) return ENOMEM;
  char *text = sl__json_text(root, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
  int error = text ? output_bytes(path, text, strlen(text)) : ENOMEM;
  json_decref(root);
  free(text);
  return error;
}
