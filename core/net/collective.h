/* What the ranks send each other to compare lines and failures: the readers take any bytes. */
#ifndef SL_CORE_NET_COLLECTIVE_H
#define SL_CORE_NET_COLLECTIVE_H

#include <starling/base.h>

/* Every rank sends one to rank 0. */
struct sl__report {
  int32_t status;
  char text[508];
};

enum { SL__REPORT_CLOSES = -1 }; /* status of a rank that closes its context */

/* Rank 0 sends it to all: the first report that is not SL_OK. */
struct sl__first_report {
  struct sl__report report;
  int32_t rank; /* whose it is; -1: there is none */
};

/* The first failure among the reports of all ranks. */
void sl__report_first(const struct sl__report *all, int size, struct sl__first_report *first);

/* After a report has arrived: its text ends, and its status is one of the library's. */
void sl__report_check(struct sl__first_report *first, int size);

/* The number of bytes of rank 0's lines, from their digits. SL_LOST if it is none. */
enum { SL__LINES_DIGITS = 24 };
enum sl_status sl__lines_length(const char digits[SL__LINES_DIGITS], size_t *length);

#endif
