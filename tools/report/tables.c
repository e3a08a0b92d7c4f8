/* Tables of devices, placement and settings. Parts that all runs have alike are written once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/html.h"
#include "tools/report/page.h"

static const char unknown[] = "The log has no line about this: it is of an older version.";

/* ---- a table for each run, or one for all ---- */

/* The part of a run's first log line that a table shows. */
static const json_t *part_of(const struct report *report, size_t run, const char *key) {
  return json_object_get(report->facts[run].start, key);
}

static bool is_same_for_all(const struct report *report, const char *key) {
  for (size_t i = 1; i < report->count; i++)
    if (!json_equal(part_of(report, 0, key), part_of(report, i, key))) return false;
  return true;
}

static void write_each(FILE *out, const struct report *report, const char *key,
                       void (*write)(FILE *, const json_t *)) {
  bool once = is_same_for_all(report, key);
  for (size_t i = 0; i < (once ? 1 : report->count); i++) {
    const json_t *part = part_of(report, i, key);
    if (report->count > 1) {
      fputs("<h3>", out);
      if (once)
        fputs("All runs", out);
      else
        report_run_name(out, report, i);
      fputs("</h3>\n", out);
    }
    if (part)
      write(out, part);
    else
      html_element(out, "p", "soft", "%s", unknown);
  }
}

/* ---- devices ---- */

static void write_devices(FILE *out, const json_t *devices) {
  static const char *const titles[] = {"Device", "StarPU's worker", "In the device list", NULL};
  size_t i;
  json_t *device;
  html_table_begin(out, "devices");
  html_titles(out, titles);
  json_array_foreach((json_t *)devices, i, device) {
    const char *name = text_at(device, "name"), *description = text_at(device, "description");
    const json_t *listed = json_object_get(device, "listed");
    fputs("<tr>", out);
    html_element(out, "th scope=\"row\"", NULL, "%s", name ? name : "?");
    html_element(out, "td", NULL, "%s", description ? description : "");
    html_element(out, "td", NULL, "%s", json_is_false(listed) ? "no" : listed ? "yes" : "");
    fputs("</tr>\n", out);
  }
  html_table_end(out);
}

void report_devices(FILE *out, const struct report *report) {
  fputs("<section id=\"devices\"><h2>Devices</h2>\n", out);
  write_each(out, report, "devices", write_devices);
  fputs("</section>\n", out);
}

/* ---- placement ---- */

static void write_layer(FILE *out, const json_t *layer) {
  static const char *const keys[] = {"name", "kind", "output"}, *const places[] = {"devices",
                                                                                   "owner"};
  char text[64];
  double parameters = number_at(layer, "parameters"), stage = number_at(layer, "stage");
  fputs("<tr>", out);
  for (size_t i = 0; i < 3; i++) {
    const char *value = text_at(layer, keys[i]);
    html_element(out, i ? "td" : "th scope=\"row\"", NULL, "%s", value ? value : "");
  }
  html_element(out, "td", "num", "%s",
               parameters >= 0 ? grouped(parameters, text, sizeof text) : "");
  html_element(out, "td", "num", "%s", stage >= 0 ? grouped(stage, text, sizeof text) : "");
  for (size_t i = 0; i < 2; i++) {
    const char *value = text_at(layer, places[i]);
    html_element(out, "td", NULL, "%s", value ? value : "\u2013");
  }
  fputs("</tr>\n", out);
}

static void write_model(FILE *out, const json_t *model) {
  static const char *const titles[] = {"Layer",  "Kind",    "Output", "#Parameters",
                                       "#Stage", "Devices", "Owner",  NULL};
  size_t i;
  json_t *layer;
  char text[64];
  double parameters = number_at(model, "parameters");
  html_table_begin(out, "placement");
  html_titles(out, titles);
  json_array_foreach(json_object_get(model, "layers"), i, layer) write_layer(out, layer);
  if (parameters >= 0) {
    fputs("<tr class=\"total\"><th scope=\"row\">total</th><td></td><td></td>", out);
    html_element(out, "td", "num", "%s", grouped(parameters, text, sizeof text));
    fputs("<td></td><td></td><td></td></tr>\n", out);
  }
  html_table_end(out);
}

void report_placement(FILE *out, const struct report *report) {
  fputs(
      "<section id=\"placement\"><h2>Placement</h2>\n"
      "<p class=\"soft\">Output: of one sample. Devices: one a replica, in their order; any: as "
      "StarPU decides. Owner: "
      "adds the gradients up and updates the parameters.</p>\n",
      out);
  write_each(out, report, "model", write_model);
  fputs("</section>\n", out);
}

/* ---- settings ---- */

/* Names of output files are no settings of the training. */
static bool is_output(const char *key) {
  static const char *const outputs[] = {"log", "save", "trace", "checkpoint"};
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
    if (strcmp(key, outputs[i]) == 0) return true;
  return false;
}

static bool differs(const struct report *report, const char *key) {
  const json_t *first = NULL;
  bool any = false;
  for (size_t i = 0; i < report->count && !is_output(key); i++) {
    const json_t *options = part_of(report, i, "options");
    const json_t *value = json_object_get(options, key);
    if (!options) continue; /* an older log has no options */
    if (any && !json_equal(first, value)) return true;
    first = value;
    any = true;
  }
  return false;
}

static void write_value(FILE *out, const json_t *options, const char *key) {
  const json_t *value = json_object_get(options, key);
  char *text = value ? value_text(value) : NULL;
  if (value && !text) html_lacks_memory();
  const char *class = !value || json_is_null(value) ? "default" : NULL;
  html_element(out, "td", class, "%s", text ? text : "\u2013");
  free(text);
}

static void write_setting(FILE *out, const struct report *report, const char *key) {
  fputs(differs(report, key) ? "<tr class=\"differs\">" : "<tr>", out);
  html_element(out, "th scope=\"row\"", NULL, "--%s", key);
  for (size_t i = 0; i < report->count; i++) write_value(out, part_of(report, i, "options"), key);
  fputs("</tr>\n", out);
}

/* As json_object_update_missing, which does not tell that it has no memory. */
static void add_missing(json_t *keys, json_t *options) {
  const char *key;
  json_t *value;
  json_object_foreach(options, key, value) {
    if (json_object_get(keys, key)) continue;
    if (json_object_set(keys, key, value) != 0) html_lacks_memory();
  }
}

/* All keys of all runs, each once. NULL without memory. */
static json_t *all_keys(const struct report *report) {
  json_t *keys = json_object();
  if (!keys) html_lacks_memory();
  for (size_t i = 0; keys && i < report->count; i++)
    add_missing(keys, (json_t *)part_of(report, i, "options"));
  return keys;
}

static void write_settings_head(FILE *out, const struct report *report) {
  html_table_begin(out, report->count > 1 ? "settings compared" : "settings");
  fputs("<thead><tr><th scope=\"col\">Option</th>", out);
  for (size_t i = 0; i < report->count; i++) {
    fputs("<th scope=\"col\">", out);
    if (report->count > 1)
      report_run_name(out, report, i);
    else
      fputs("Value", out);
    fputs("</th>", out);
  }
  fputs("</tr></thead><tbody>\n", out);
}

/* A single run's settings: two tables side by side if the page is wide enough. */
static void write_single(FILE *out, const struct report *report, json_t *keys) {
  size_t half = (json_object_size(keys) + 1) / 2, written = 0;
  const char *key;
  json_t *value;
  fputs("<div class=\"pairs\">", out);
  json_object_foreach(keys, key, value) {
    if (written % half == 0) write_settings_head(out, report);
    write_setting(out, report, key);
    if (++written % half == 0 || written == json_object_size(keys)) html_table_end(out);
  }
  fputs("</div>\n", out);
}

/* Settings that differ come first. */
static void write_compared(FILE *out, const struct report *report, json_t *keys) {
  const char *key;
  json_t *value;
  int count = 0;
  json_object_foreach(keys, key, value) count += differs(report, key);
  html_element(out, "p", "soft", "%d setting%s between the runs.", count,
               count == 1 ? " differs" : "s differ");
  write_settings_head(out, report);
  json_object_foreach(keys, key, value) if (differs(report, key)) write_setting(out, report, key);
  json_object_foreach(keys, key, value) if (!differs(report, key)) write_setting(out, report, key);
  html_table_end(out);
}

void report_settings(FILE *out, const struct report *report) {
  json_t *keys = all_keys(report);
  fputs("<section id=\"settings\"><h2>Settings</h2>\n", out);
  if (!json_object_size(keys))
    html_element(out, "p", "soft", "%s", unknown);
  else if (report->count == 1)
    write_single(out, report, keys);
  else
    write_compared(out, report, keys);
  fputs("</section>\n", out);
  json_decref(keys);
}
