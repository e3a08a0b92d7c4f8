/* The section about a trace of --trace DIR: shares of the devices' time, layers, the critical path,
 * the longest tasks. Parts that a trace lacks are left out. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/html.h"
#include "tools/report/page.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

#define TRACE_FORMAT "starling trace"
enum { TRACE_VERSION = 1, MOST_PICTURE = 16 << 20 };

/* ---- reading ---- */

static bool refuse(char *message, size_t size, const char *format, ...) HTML_PRINTF(3, 4);
static bool refuse(char *message, size_t size, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(message, size, format, list);
  va_end(list);
  for (char *c = message; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 127)
      *c = '?'; /* a control character would break the one line of the message */
  return false;
}

static bool check_version(const char *folder, const json_t *trace, char *message, size_t size) {
  const char *format = text_at(trace, "format"), *producer = text_at(trace, "producer");
  const json_t *version = json_object_get(trace, "version");
  if (!format || strcmp(format, TRACE_FORMAT) != 0)
    return refuse(message, size, "%s/trace.json: is no Starling trace", folder);
  if (!json_is_integer(version) || json_integer_value(version) < 1)
    return refuse(message, size, "%s/trace.json: \"version\" is not a whole number from 1 on",
                  folder);
  if (json_integer_value(version) <= TRACE_VERSION) return true;
  return refuse(
      message, size,
      "%s/trace.json: is of version %lld (by %.40s), this program (Starling " PACKAGE_VERSION
      ") reads up to version %d; take a newer one",
      folder, (long long)json_integer_value(version), producer ? producer : "?", TRACE_VERSION);
}

/* The picture is optional: if it is missing or damaged, the page has none. */
static void read_picture(const char *path, struct trace_report *trace) {
  FILE *file = fopen(path, "re");
  char *bytes = file ? malloc(MOST_PICTURE) : NULL;
  size_t count = bytes ? fread(bytes, 1, MOST_PICTURE, file) : 0, end = count;
  if (file && !bytes) html_lacks_memory();
  if (file) fclose(file);
  while (end && strchr(" \t\r\n", bytes[end - 1])) end--;
  bool whole = count < MOST_PICTURE && end > 10 && memcmp(bytes + end - 6, "</svg>", 6) == 0 &&
               (memcmp(bytes, "<svg", 4) == 0 || memcmp(bytes, "<?xml", 5) == 0);
  if (!whole) {
    free(bytes);
    return;
  }
  trace->picture = bytes;
  trace->picture_size = count;
}

bool trace_report_read(const char *folder, struct trace_report *trace, char *message, size_t size) {
  char *path = NULL, *picture = NULL;
  json_error_t error;
  bool good = false;
  *trace = (struct trace_report){.folder = folder};
  if (asprintf(&path, "%s/trace.json", folder) < 0 ||
      asprintf(&picture, "%s/trace.svg", folder) < 0)
    return refuse(message, size, "no memory");
  FILE *file = fopen(path, "re");
  if (!file) {
    refuse(message, size, "%s: cannot be opened: %s; was the run made with --trace?", path,
           strerror(errno));
  } else {
    trace->trace = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (!trace->trace)
      refuse(message, size, "%s:%d: not JSON: %s; was the file cut short?", path, error.line,
             error.text);
    else
      good = check_version(folder, trace->trace, message, size);
  }
  if (good) read_picture(picture, trace);
  free(path);
  free(picture);
  return good;
}

void trace_report_free(struct trace_report *trace) {
  json_decref(trace->trace);
  free(trace->picture);
}

/* ---- cells ---- */

/* A dash if the number is unknown. */
static void write_number(FILE *out, const json_t *object, const char *key, int digits,
                         double factor, const char *unit) {
  double value = number_at(object, key);
  if (isnan(value))
    html_element(out, "td", "num", "\u2013");
  else
    html_element(out, "td", "num", "%.*f%s", digits, factor * value, unit);
}

static void write_text(FILE *out, const char *tag, const json_t *object, const char *key) {
  const char *text = text_at(object, key);
  html_element(out, tag, NULL, "%s", text ? text : "");
}

/* One part of a bar; the whole bar is 100 wide. */
static void write_part(FILE *out, const char *class, double from, double width, const char *name) {
  if (!(width > 0)) return;
  fprintf(out, "<rect class=\"%s\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"10\"><title>", class,
          from, width);
  html_text(out, "%s %.1f %%", name, width);
  fputs("</title></rect>", out);
}

struct part {
  const char *key, *class, *name;
};

/* A stacked bar of numbers of an object, as shares of `whole`. */
static void write_bar(FILE *out, const json_t *object, const struct part *parts, size_t count,
                      double whole) {
  double from = 0;
  fputs("<td class=\"bar\"><svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\">",
        out);
  for (size_t i = 0; i < count && whole > 0; i++) {
    double width = 100 * fmax(number_at(object, parts[i].key), 0) / whole;
    if (isnan(width)) width = 0;
    width = fmin(width, 100 - from);
    write_part(out, parts[i].class, from, width, parts[i].name);
    from += width;
  }
  fputs("</svg></td>", out);
}

static double sum_of(const json_t *object, const struct part *parts, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; i++) {
    double value = number_at(object, parts[i].key);
    if (value > 0) sum += value;
  }
  return sum;
}

static void write_parts_key(FILE *out, const struct part *parts, size_t count) {
  fputs("<ul class=\"keys\">", out);
  for (size_t i = 0; i < count; i++)
    fprintf(out, "<li><span class=\"chip %s\"></span>%s</li>", parts[i].class, parts[i].name);
  fputs("</ul>\n", out);
}

/* ---- the parts of the section ---- */

static const struct part device_parts[] = {{"busy_ms", "busy", "computing"},
                                           {"transfer_ms", "transfer", "transfers"},
                                           {"overhead_ms", "overhead", "StarPU"},
                                           {"idle_ms", "idle", "idle"}};
static const struct part layer_parts[] = {{"forward_ms", "c0", "forward"},
                                          {"backward_ms", "c1", "backward"},
                                          {"update_ms", "c2", "update"}};

/* "window 152.6 ms, 356 tasks, steps 11 to 20" */
static void write_facts(FILE *out, const json_t *trace) {
  const json_t *steps = json_object_get(trace, "steps");
  const json_t *overlap = json_object_get(trace, "overlap");
  double window = number_at(trace, "window_ms"), wall = number_at(trace, "wall_ms");
  double tasks = number_at(trace, "tasks"), bubble = number_at(trace, "bubble_share");
  double compute = number_at(overlap, "compute_share"),
         sent = number_at(overlap, "communication_share");
  fputs("<p>", out);
  if (json_array_size(steps) == 2)
    html_text(out, "Steps %lld to %lld. ", (long long)json_integer_value(json_array_get(steps, 0)),
              (long long)json_integer_value(json_array_get(steps, 1)));
  if (!isnan(window)) html_text(out, "Window: %.2f ms. ", window);
  if (!isnan(wall)) html_text(out, "Wall clock: %.2f ms. ", wall);
  if (!isnan(tasks)) html_text(out, "%.0f tasks. ", tasks);
  if (!isnan(bubble)) html_text(out, "Devices wait %.1f %% of the time. ", 100 * bubble);
  if (!isnan(compute)) html_text(out, "Two or more compute at once %.1f %% of it. ", 100 * compute);
  if (!isnan(sent))
    html_text(out, "During %.1f %% of the transfers' time some device computes.", 100 * sent);
  fputs("</p>\n", out);
}

static void write_devices(FILE *out, const json_t *devices) {
  static const char *const titles[] = {"Device",
                                       "Share of its time",
                                       "#Computing ms",
                                       "#Transfers",
                                       "#StarPU",
                                       "#Idle",
                                       "#Tasks",
                                       "Memory",
                                       NULL};
  size_t i, parts = sizeof device_parts / sizeof *device_parts;
  json_t *device;
  if (!json_array_size(devices)) return;
  html_element(out, "h3", NULL, "Time of the devices");
  write_parts_key(out, device_parts, parts);
  html_table_begin(out, "trace-devices");
  html_titles(out, titles);
  json_array_foreach((json_t *)devices, i, device) {
    fputs("<tr>", out);
    write_text(out, "th scope=\"row\"", device, "name");
    write_bar(out, device, device_parts, parts, sum_of(device, device_parts, parts));
    for (size_t p = 0; p < parts; p++) write_number(out, device, device_parts[p].key, 2, 1, "");
    write_number(out, device, "tasks", 0, 1, "");
    write_text(out, "td", device, "node");
    fputs("</tr>\n", out);
  }
  html_table_end(out);
}

static void write_layers(FILE *out, const json_t *layers) {
  static const char *const titles[] = {"Layer",   "Time",     "#Forward ms",      "#Backward",
                                       "#Update", "#GFLOP/s", "#Of the roofline", NULL};
  size_t i, parts = sizeof layer_parts / sizeof *layer_parts;
  json_t *layer;
  double most = 0;
  if (!json_array_size(layers)) return;
  json_array_foreach((json_t *)layers, i, layer) most =
      fmax(most, sum_of(layer, layer_parts, parts));
  html_element(out, "h3", NULL, "Time of the layers");
  write_parts_key(out, layer_parts, parts);
  html_table_begin(out, "trace-layers");
  html_titles(out, titles);
  json_array_foreach((json_t *)layers, i, layer) {
    fputs("<tr>", out);
    write_text(out, "th scope=\"row\"", layer, "name");
    write_bar(out, layer, layer_parts, parts, most);
    for (size_t p = 0; p < parts; p++) write_number(out, layer, layer_parts[p].key, 2, 1, "");
    write_number(out, layer, "gflops", 1, 1, "");
    write_number(out, layer, "roofline_share", 1, 100, " %");
    fputs("</tr>\n", out);
  }
  html_table_end(out);
}

static void write_path(FILE *out, const json_t *path) {
  static const char *const titles[] = {"Task", "#ms", NULL};
  double ms = number_at(path, "ms"), share = number_at(path, "share");
  const json_t *tasks = json_object_get(path, "tasks");
  size_t i;
  json_t *task;
  if (!json_is_object(path)) return;
  html_element(out, "h3", NULL, "Critical path");
  fputs("<p class=\"soft\">", out);
  if (!isnan(ms)) html_text(out, "%.2f ms", ms);
  if (!isnan(share)) html_text(out, ", %.1f %% of the window", 100 * share);
  if (json_array_size(tasks))
    html_text(out, "; %zu tasks, each of which waits for the one before", json_array_size(tasks));
  fputs("</p>\n", out);
  if (!json_array_size(tasks)) return;
  fprintf(out, "<details%s><summary>The tasks</summary>",
          json_array_size(tasks) > 20 ? "" : " open");
  html_table_begin(out, "trace-path");
  html_titles(out, titles);
  json_array_foreach((json_t *)tasks, i, task) {
    fputs("<tr>", out);
    write_text(out, "td", task, "name");
    write_number(out, task, "ms", 3, 1, "");
    fputs("</tr>\n", out);
  }
  html_table_end(out);
  fputs("</details>\n", out);
}

static void write_longest(FILE *out, const json_t *tasks) {
  static const char *const titles[] = {"Task",    "Layer",   "Pass",      "#Step",
                                       "#Worker", "#Begins", "#Takes ms", NULL};
  size_t i;
  json_t *task;
  if (!json_array_size(tasks)) return;
  html_element(out, "h3", NULL, "Longest tasks");
  html_table_begin(out, "trace-longest");
  html_titles(out, titles);
  json_array_foreach((json_t *)tasks, i, task) {
    fputs("<tr>", out);
    write_text(out, "td", task, "name");
    write_text(out, "td", task, "layer");
    write_text(out, "td", task, "pass");
    write_number(out, task, "step", 0, 1, "");
    write_number(out, task, "worker", 0, 1, "");
    write_number(out, task, "start_ms", 2, 1, "");
    write_number(out, task, "ms", 3, 1, "");
    fputs("</tr>\n", out);
  }
  html_table_end(out);
}

/* Embedded as an image: its identifiers cannot clash with others, and its scripts do not run. */
static void write_picture(FILE *out, const struct trace_report *trace) {
  if (!trace->picture) return;
  fputs(
      "<figure class=\"picture\"><img alt=\"Tasks of each device over time\" "
      "src=\"data:image/svg+xml;base64,",
      out);
  html_base64(out, (const unsigned char *)trace->picture, trace->picture_size);
  fputs("\"><figcaption>Tasks of each device over time.</figcaption></figure>\n", out);
}

void report_trace(FILE *out, const struct trace_report *trace, size_t number) {
  fprintf(out, "<section id=\"trace-%zu\">", number);
  html_element(out, "h2", NULL, "Trace: %s", trace->folder);
  fputc('\n', out);
  write_facts(out, trace->trace);
  write_picture(out, trace);
  write_devices(out, json_object_get(trace->trace, "devices"));
  write_layers(out, json_object_get(trace->trace, "layers"));
  write_path(out, json_object_get(trace->trace, "critical_path"));
  write_longest(out, json_object_get(trace->trace, "longest"));
  fputs("</section>\n", out);
}
