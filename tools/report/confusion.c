/* The confusion matrix of a run's last evaluation: the table, and the most frequent mistakes. */
#include <stdlib.h>

#include "tools/report/html.h"
#include "tools/report/page.h"

enum { MOST_CLASSES = 32, MISTAKES = 10 };

/* The number of samples with this label that got this answer; 0 in a damaged line. */
static double count_at(const json_t *line, size_t label, size_t answer) {
  const json_t *row = json_array_get(json_object_get(line, "confusion"), label);
  const json_t *number = json_array_get(row, answer);
  return json_is_number(number) ? json_number_value(number) : 0;
}

static size_t classes_of(const json_t *line) {
  return json_array_size(json_object_get(line, "confusion"));
}

/* A class without a name is a number. */
static void write_class(FILE *out, const char *tag, const char *class, const json_t *line,
                        size_t c) {
  const char *name = json_string_value(json_array_get(json_object_get(line, "classes"), c));
  if (name)
    html_element(out, tag, class, "%s", name);
  else
    html_element(out, tag, class, "%zu", c);
}

static void write_row(FILE *out, const json_t *line, size_t label) {
  char text[64];
  double right = count_at(line, label, label), all = 0;
  fputs("<tr>", out);
  write_class(out, "th scope=\"row\"", NULL, line, label);
  for (size_t answer = 0; answer < classes_of(line); answer++) {
    double count = count_at(line, label, answer);
    all += count;
    html_element(out, answer == label ? "th" : "td", count > 0 ? "num" : "num soft", "%s",
                 grouped(count, text, sizeof text));
  }
  html_element(out, "td", "num", "%.1f %%", all > 0 ? 100 * right / all : 0.0);
  fputs("</tr>\n", out);
}

static void write_matrix(FILE *out, const json_t *line) {
  html_table_begin(out, "confusion");
  fputs("<thead><tr><th scope=\"col\">Label, answer</th>", out);
  for (size_t c = 0; c < classes_of(line); c++)
    write_class(out, "th scope=\"col\"", "num", line, c);
  fputs("<th scope=\"col\" class=\"num\">Right</th></tr></thead><tbody>\n", out);
  for (size_t label = 0; label < classes_of(line); label++) write_row(out, line, label);
  html_table_end(out);
}

struct mistake {
  size_t label, answer;
  double count;
};

/* The most frequent ones first; equally frequent ones in the labels' order. Returns their number.
 */
static int find_mistakes(const json_t *line, struct mistake *list) {
  int count = 0;
  for (size_t label = 0; label < classes_of(line); label++)
    for (size_t answer = 0; answer < classes_of(line); answer++) {
      struct mistake m = {label, answer, count_at(line, label, answer)};
      if (label == answer || !(m.count > 0)) continue;
      int at = count;
      while (at > 0 && list[at - 1].count < m.count) at--;
      if (at == MISTAKES) continue;
      if (count < MISTAKES) count++;
      for (int i = count - 1; i > at; i--) list[i] = list[i - 1];
      list[at] = m;
    }
  return count;
}

static void write_mistakes(FILE *out, const json_t *line) {
  static const char *const titles[] = {"Label", "Answer", "#Samples", NULL};
  struct mistake list[MISTAKES];
  char text[64];
  int count = find_mistakes(line, list);
  if (!count) {
    html_element(out, "p", "soft", "No answer was wrong.");
    return;
  }
  html_element(out, "p", "soft", "The most frequent mistakes:");
  html_table_begin(out, "mistakes");
  html_titles(out, titles);
  for (int i = 0; i < count; i++) {
    fputs("<tr>", out);
    write_class(out, "td", NULL, line, list[i].label);
    write_class(out, "td", NULL, line, list[i].answer);
    html_element(out, "td", "num", "%s", grouped(list[i].count, text, sizeof text));
    fputs("</tr>\n", out);
  }
  html_table_end(out);
}

void report_confusion(FILE *out, const struct report *report) {
  bool any = false;
  for (size_t i = 0; i < report->count; i++) any |= report->facts[i].confusion != NULL;
  if (!any) return;
  fputs("<section id=\"confusion\"><h2>Confusion matrix</h2>\n", out);
  for (size_t i = 0; i < report->count; i++) {
    const json_t *line = report->facts[i].confusion;
    if (!line) continue;
    if (report->count > 1) {
      fputs("<h3>", out);
      report_run_name(out, report, i);
      fputs("</h3>\n", out);
    }
    if (classes_of(line) <= MOST_CLASSES) write_matrix(out, line);
    write_mistakes(out, line);
  }
  fputs("</section>\n", out);
}
