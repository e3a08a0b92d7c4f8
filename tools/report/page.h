/* The report of runs as one HTML page: what the logs say (report_facts.c), the page
 * (report_page.c), its tables (report_tables.c) and traces (report_trace.c). */
#ifndef SL_TOOLS_REPORT_PAGE_H
#define SL_TOOLS_REPORT_PAGE_H

#include <jansson.h>
#include <stdio.h>

#include "tools/common/curves.h"

/* Of one log. What is unknown is NULL, NAN or -1. */
struct facts {
  const json_t *start; /* the newest process's first line; NULL: an older log */
  const json_t *end;   /* the newest process's last line; NULL: killed, or still at work */
  int starts;          /* processes */
  double steps;
  double loss;                                    /* mean of the last steps */
  double test_loss, best_test_loss, best_loss_at; /* the last one; the lowest, after steps */
  double accuracy, best_accuracy, best_accuracy_at;
  double rate;    /* median samples/s */
  double seconds; /* of all processes that told */
  int checkpoints;
  double checkpoint_at, stopped, write, bytes; /* the last one's steps; medians */
};

/* A folder that --trace wrote. */
struct trace_report {
  const char *folder;
  json_t *trace;
  char *picture; /* SVG; NULL: none */
  size_t picture_size;
};

struct report {
  const char *title; /* NULL: the default title */
  double smooth;     /* steps; 0: a hundredth of the run */
  bool log_scale;
  struct run_curves *runs;
  struct facts *facts; /* one a run */
  size_t count;
  struct trace_report *traces;
  size_t trace_count;
};

/* false: no memory. */
bool facts_find(const struct run_curves *run, struct facts *facts);

/* false: message holds one line that names the file. */
bool trace_read(const char *folder, struct trace_report *trace, char *message, size_t size);
void trace_free(struct trace_report *trace);

extern const char report_style[];

/* The whole page into a stream that keeps it in memory. false: no memory. */
bool report_write(FILE *out, const struct report *report);

/* Each a <section>. */
void report_summary(FILE *out, const struct report *report);
void report_course(FILE *out, const struct report *report);
void report_devices(FILE *out, const struct report *report);
void report_placement(FILE *out, const struct report *report);
void report_settings(FILE *out, const struct report *report);
void report_trace(FILE *out, const struct trace_report *trace, size_t number);

/* A run's colour and name; one run alone needs no such heading. */
void report_run_name(FILE *out, const struct report *report, size_t run);

/* 1234567 as "1,234,567". */
const char *grouped(double number, char *text, size_t size);
/* "0.8 s", "12.3 s", "2 min 5 s", "1 h 2 min" */
const char *time_text(double seconds, char *text, size_t size);
/* A setting's value as people read it; to be freed, NULL: no memory. */
char *value_text(const json_t *value);
/* A string under that key; NULL: none. */
const char *text_at(const json_t *object, const char *key);
/* A number under that key; NAN: none. */
double number_at(const json_t *object, const char *key);

#endif
