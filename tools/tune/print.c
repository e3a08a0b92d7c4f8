/* Prints the table and the best command line; writes both as JSON. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tools/common/output_bytes.h"
#include "tools/tune/tune.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "(unconfigured)"
#endif

static const struct entry *table; /* for qsort */

/* The default comes first, then the fastest; failed settings come last. */
static int by_ratio(const void *a, const void *b) {
  const struct entry *x = table + *(const size_t *)a, *y = table + *(const size_t *)b;
  double p = estimate_of(x->ratios, x->ratio_count).value;
  double q = estimate_of(y->ratios, y->ratio_count).value;
  if (!*x->setting != !*y->setting) return *x->setting ? 1 : -1;
  if (isnan(p) != isnan(q)) return isnan(p) ? 1 : -1;
  if (x->failed != y->failed) return x->failed ? 1 : -1;
  return isnan(p) ? 0 : (p < q) - (p > q);
}

/* "1.023" or "-" */
static const char *number(char text[32], const char *format, double value) {
  if (isnan(value))
    strcpy(text, "-");
  else
    snprintf(text, 32, format, value);
  return text;
}

static void print_entry(const struct entry *entry) {
  char rate[32], share[32], ratio[32], spread[32];
  struct estimate rates = estimate_of(entry->rates, entry->rate_count);
  struct estimate ratios = estimate_of(entry->ratios, entry->ratio_count);
  printf(
      "%10s %6s %7s %6s %5zu  %s", number(rate, rates.value < 100 ? "%.3g" : "%.0f", rates.value),
      number(share, "%.1f", 100 * rates.spread / rates.value), number(ratio, "%.3f", ratios.value),
      number(spread, "%.3f", *entry->setting ? ratios.spread : NAN), entry->rate_count,
      *entry->setting ? entry->setting : "(as given)");
  if (entry->failed) printf("  FAILED: %s", entry->failure);
  putchar('\n');
}

void print_table(const struct tuner *tuner, bool sorted) {
  size_t *order = tune_grow(NULL, tuner->count, sizeof *order);
  for (size_t i = 0; i < tuner->count; i++) order[i] = i;
  table = tuner->entries;
  if (sorted) qsort(order, tuner->count, sizeof *order, by_ratio);
  printf("%10s %6s %7s %6s %5s  %s\n", "samples/s", "+-%", "ratio", "+-", "runs", "setting");
  for (size_t i = 0; i < tuner->count; i++)
    if (tuner->entries[order[i]].rate_count || tuner->entries[order[i]].failed)
      print_entry(&tuner->entries[order[i]]);
  free(order);
}

/* Without --replicas the number of replicas follows the number of workers. */
static bool changes_bits(const char *setting, char *const *program) {
  static const char *const signs[] = {
      "--replicas",  "--microbatches",         "--stages", "--tune", "--devices",
      "STARPU_NCPU", "STARPU_MAIN_THREAD_BIND"};
  size_t count = sizeof signs / sizeof *signs;
  if (is_fixed(program, "--replicas")) count -= 2;
  for (size_t i = 0; i < count; i++)
    if (strstr(setting, signs[i])) return true;
  return false;
}

void print_verdict(const struct tuner *tuner, const struct verdict *verdict, char *const *program) {
  char *line = command_line(program, verdict->setting, search_variables);
  putchar('\n');
  if (!verdict->tried)
    printf(
        "The time is over, and nothing else was tried: give more --seconds (a run takes %.1f).\n",
        tuner->cost);
  else if (!*verdict->setting)
    printf("Nothing that was tried is better than the command line as given, beyond the noise:\n");
  else if (verdict->confirmed)
    printf("Best: %.2f +- %.2f times as many samples a second, of %zu pairs of runs:\n",
           verdict->gain.value, verdict->gain.spread, verdict->gain.count);
  else
    printf("Best so far, not confirmed:\n");
  printf("%s\n", line);
  if (changes_bits(verdict->setting, program))
    printf(
        "(It adds up in another order: not the same bits as the command line as given. "
        "--same-bits leaves such settings out.)\n");
  free(line);
}

/* ---- JSON ---- */

static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *entry_json(const struct entry *entry) {
  struct estimate rates = estimate_of(entry->rates, entry->rate_count);
  struct estimate ratios = estimate_of(entry->ratios, entry->ratio_count);
  json_t *runs = json_array();
  for (size_t i = 0; i < entry->rate_count; i++) sl__json_append(&runs, json_real(entry->rates[i]));
  return json_pack("{s:s%, s:o, s:o, s:o, s:o, s:o, s:o}", "setting", entry->setting,
                   strlen(entry->setting), "samples_per_s", real(rates.value), "spread",
                   real(rates.spread), "ratio", real(ratios.value), "ratio_spread",
                   real(ratios.spread), "runs", runs, "failure",
                   entry->failed ? json_string(entry->failure) : json_null());
}

static json_t *verdict_json(const struct verdict *verdict, char *const *program) {
  if (!verdict) return json_null();
  char *line = command_line(program, verdict->setting, search_variables);
  json_t *best = json_pack("{s:s, s:s, s:o, s:o, s:b}", "setting", verdict->setting, "command",
                           line, "ratio", real(verdict->confirmed ? verdict->gain.value : NAN),
                           "ratio_spread", real(verdict->confirmed ? verdict->gain.spread : NAN),
                           "confirmed", (int)verdict->confirmed);
  free(line);
  return best;
}

/* Writes to another name and renames. */
int write_json(const char *path, const struct tuner *tuner, const struct verdict *verdict,
               char *const *program) {
  json_t *words = json_array(), *settings = json_array();
  for (size_t i = 0; program[i]; i++) sl__json_append(&words, json_string(program[i]));
  for (size_t i = 0; i < tuner->count; i++)
    sl__json_append(&settings, entry_json(&tuner->entries[i]));
  json_t *all = json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}", "format", "starling tune", "version", 1,
                          "producer", "Starling " PACKAGE_VERSION, "program", words, "settings",
                          settings, "best", verdict_json(verdict, program));
  char *text = sl__json_text(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  int error = text ? output_bytes(path, text, strlen(text)) : ENOMEM;
  json_decref(all);
  free(text);
  return error;
}
