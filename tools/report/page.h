/* The report of runs as one HTML page: facts from the logs (facts.c), the page (page.c), its
 * summary and tables (summary.c, confusion.c, tables.c) and traces (trace_section.c). */
#ifndef SL_TOOLS_REPORT_PAGE_H
#define SL_TOOLS_REPORT_PAGE_H

#include <jansson.h>
#include <stdio.h>

#include "tools/common/curves.h"

/* The facts about a run, from one log. An unknown fact is NULL, NAN or -1. */
struct facts {
  const json_t *begin;     /* first line of the first process; NULL: an older log */
  const json_t *start;     /* the same of the newest process */
  const json_t *end;       /* last line of the newest process; NULL: killed, or still running */
  const json_t *confusion; /* the newest line with such a matrix; NULL: none */
  int starts;              /* number of processes */
  double steps;
  double loss; /* mean of the last steps */
  /* the last value; the lowest, and the steps before it */
  double test_loss, best_test_loss, best_loss_at;
  double accuracy, best_accuracy, best_accuracy_at;
  double rate;    /* median samples/s */
  double seconds; /* sum over all processes whose log says it */
  int checkpoints;
  double checkpoint_at, stopped, write, bytes; /* steps before the last one; medians */
};

/* The contents of a folder that --trace wrote. */
struct trace_report {
  const char *folder;
  json_t *trace;
  char *picture; /* SVG; NULL: none */
  size_t picture_size;
};

struct report {
  const char *title; /* NULL: the default title */
  double smooth;     /* in steps; 0: a hundredth of the run */
  bool log_scale;
  struct run_curves *runs;
  struct facts *facts; /* one for each run */
  size_t count;
  struct trace_report *traces;
  size_t trace_count;
};

/* Of a series: the last value, the least or largest one, and the steps before it; NAN: empty. */
void find_best(const struct series *series, bool least, double *last, double *best, double *at);

/* The next metric, in the order of the runs, that no earlier run has; *run and *metric begin at 0.
 * NULL: that were all. */
const char *report_next_metric(const struct report *report, size_t *run, size_t *metric);

/* Returns false without memory. */
bool facts_find(const struct run_curves *run, struct facts *facts);

/* Returns false after a failure; message is one line that names the file. */
bool trace_report_read(const char *folder, struct trace_report *trace, char *message, size_t size);
void trace_report_free(struct trace_report *trace);

extern const char report_style[];

/* Writes the whole page to a stream in memory. Returns false without memory. */
bool report_write(FILE *out, const struct report *report);

/* Each writes one <section>. */
void report_summary(FILE *out, const struct report *report);
void report_course(FILE *out, const struct report *report);
void report_confusion(FILE *out, const struct report *report);
void report_devices(FILE *out, const struct report *report);
void report_placement(FILE *out, const struct report *report);
void report_settings(FILE *out, const struct report *report);
void report_trace(FILE *out, const struct trace_report *trace, size_t number);

/* Writes a run's colour and name; a single run needs no such heading. */
void report_run_name(FILE *out, const struct report *report, size_t run);

/* 1234567 as "1,234,567". */
const char *grouped(double number, char *text, size_t size);
/* "0.8 s", "12.3 s", "2 min 5 s", "1 h 2 min" */
const char *time_text(double seconds, char *text, size_t size);
/* A setting's value as people read it; the caller frees it. NULL without memory. */
char *value_text(const json_t *value);
/* The string under a key; NULL if there is none. */
const char *text_at(const json_t *object, const char *key);
/* The number under a key; NAN if there is none. */
double number_at(const json_t *object, const char *key);

#endif
