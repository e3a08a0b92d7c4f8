/* The frame of the page, and the curves. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/canvas.h"
#include "tools/common/chart.h"
#include "tools/common/metric_names.h"
#include "tools/report/html.h"
#include "tools/report/page.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

/* ---- curves ---- */

/* metric: of CHART_METRIC. */
static bool write_svg(FILE *out, const struct report *report, enum chart_kind kind,
                      const char *metric) {
  /* two charts side by side on a wide page, one on a phone, with legible letters in both */
  const struct chart_options options = {.kind = kind,
                                        .width = 480,
                                        .height = 290,
                                        .metric = metric,
                                        .log_scale = report->log_scale,
                                        .smooth = report->smooth};
  char *bytes = NULL;
  size_t size;
  struct canvas *canvas = canvas_svg(options.width, options.height);
  bool good = canvas && chart_draw(canvas, &options, report->runs, report->count) &&
              canvas->finish(canvas, &bytes, &size);
  if (good) fwrite(bytes, 1, size, out);
  free(bytes);
  if (canvas) canvas->free(canvas);
  return good;
}

static bool write_figure(FILE *out, const struct report *report, enum chart_kind kind,
                         const char *metric, const char *name, const char *caption) {
  fputs("<figure class=\"chart\" aria-label=\"", out);
  html_text(out, "%s", name);
  fputs("\">\n", out);
  if (!write_svg(out, report, kind, metric)) return false;
  html_element(out, "figcaption", NULL, "%s", caption);
  fputs("</figure>\n", out);
  return true;
}

static bool write_chart(FILE *out, const struct report *report, enum chart_kind kind,
                        const char *name, const char *caption) {
  return !chart_has(kind, report->runs, report->count) ||
         write_figure(out, report, kind, NULL, name, caption);
}

/* All metrics but loss and accuracy. */
static bool write_metrics(FILE *out, const struct report *report) {
  char name[160], title[200];
  const char *key;
  bool good = true;
  for (size_t run = 0, metric = 0;
       good && (key = report_next_metric(report, &run, &metric)) != NULL;) {
    snprintf(title, sizeof title, "Test %s", metric_name(key, name, sizeof name));
    good = write_figure(
        out, report, CHART_METRIC, key, title,
        metric_kind(key).larger ? "A larger one is better." : "A smaller one is better.");
  }
  return good;
}

static void write_key(FILE *out, const struct report *report) {
  if (report->count == 1) return;
  fputs("<ul class=\"keys\">", out);
  for (size_t i = 0; i < report->count; i++) {
    fputs("<li>", out);
    report_run_name(out, report, i);
    fputs("</li>", out);
  }
  fputs("</ul>\n", out);
}

static bool write_curves(FILE *out, const struct report *report) {
  char loss[160], rate[100];
  double window = report->smooth > 0 ? report->smooth : chart_window(report->runs, report->count);
  if (window > 1)
    snprintf(rate, sizeof rate, "Bold: mean of about %.0f steps; pale: each step", window);
  else
    snprintf(rate, sizeof rate, "Each step");
  snprintf(loss, sizeof loss, "%s; dashed, with dots: test.", rate);
  fputs("<section id=\"curves\"><h2>Curves</h2>\n", out);
  write_key(out, report);
  fputs("<div class=\"charts\">\n", out);
  bool good =
      write_chart(out, report, CHART_LOSS, "Loss", loss) &&
      write_chart(out, report, CHART_ACCURACY, "Test accuracy", "Share of right answers.") &&
      write_metrics(out, report) &&
      write_chart(out, report, CHART_PERPLEXITY, "Perplexity",
                  "Training (smoothed) and, dashed, validation.") &&
      write_chart(out, report, CHART_RATE, "Throughput", rate) &&
      write_chart(out, report, CHART_LR, "Learning rate", "Learning rate of each step.");
  fputs("</div></section>\n", out);
  return good;
}

/* ---- head and foot ---- */

static void write_title(FILE *out, const struct report *report) {
  const char *program = text_at(report->facts[0].start, "program");
  if (report->title)
    html_text(out, "%s", report->title);
  else if (report->count > 1)
    html_text(out, "Comparison of %zu runs", report->count);
  else if (program && strcmp(program, report->runs[0].label) != 0)
    html_text(out, "%s: %s", program, report->runs[0].label);
  else
    html_text(out, "%s", report->runs[0].label);
}

static void write_links(FILE *out, const struct report *report) {
  bool course = false;
  for (size_t i = 0; i < report->count; i++) course |= json_array_size(report->runs[i].notes) > 0;
  fputs("<nav><a href=\"#summary\">Summary</a><a href=\"#curves\">Curves</a>", out);
  if (course) fputs("<a href=\"#course\">Course</a>", out);
  fputs(
      "<a href=\"#devices\">Devices</a><a href=\"#placement\">Placement</a>"
      "<a href=\"#settings\">Settings</a>",
      out);
  if (report->trace_count) fputs("<a href=\"#trace-1\">Trace</a>", out);
  fputs("</nav>\n", out);
}

static void write_head(FILE *out, const struct report *report) {
  /* a log may hold text from strangers: the browser must fetch and run nothing */
  fputs(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; img-src data:\">\n"
      "<meta name=\"generator\" content=\"Starling " PACKAGE_VERSION "\">\n<title>",
      out);
  write_title(out, report);
  fputs("</title>\n<style>\n", out);
  fputs(report_style, out);
  fputs("</style>\n</head>\n<body>\n<header>\n<h1>", out);
  write_title(out, report);
  fputs("</h1>\n", out);
  write_links(out, report);
  fputs("</header>\n<main>\n", out);
}

bool report_write(FILE *out, const struct report *report) {
  write_head(out, report);
  report_summary(out, report);
  if (!write_curves(out, report)) return false;
  report_course(out, report);
  report_confusion(out, report);
  report_devices(out, report);
  report_placement(out, report);
  report_settings(out, report);
  for (size_t i = 0; i < report->trace_count; i++) report_trace(out, &report->traces[i], i + 1);
  fputs("</main>\n<footer>\n", out);
  html_element(out, "p", NULL, "Written by starling-report, Starling %s.", PACKAGE_VERSION);
  fputs("</footer>\n</body>\n</html>\n", out);
  return html_is_whole(out);
}
