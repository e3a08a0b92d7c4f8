/* Metrics of an evaluation, for people: names and values. A key is that of a log's line without
 * "test_": "auc", or "left.auc" of an output `left`. */
#ifndef SL_TOOLS_COMMON_METRIC_NAMES_H
#define SL_TOOLS_COMMON_METRIC_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct metric_kind {
  const char *key, *name; /* "top5", "top-5 accuracy" */
  bool larger;            /* is better */
  bool share;             /* of 1: shown in percent */
};

/* The kind of a metric. One that is not known has its key as name; of it the least is best. */
struct metric_kind metric_kind(const char *key);

/* "AUC", "left AUC". Returns text. */
const char *metric_name(const char *key, char *text, size_t size);

/* "0.8192", "98.00 %". Returns text. */
const char *metric_value(const char *key, double value, char *text, size_t size);

#endif
