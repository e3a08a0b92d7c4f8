/* Comparing lines, failures and flags of all ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "core/net/collective.h"
#include "core/net/net.h"

int sl__launched(int *rank) {
  static const struct {
    const char *size, *rank;
  } launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                   {"PMI_SIZE", "PMI_RANK"},
                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  int unused;
  if (!rank) rank = &unused;
  *rank = 0;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const char *size = getenv(launchers[i].size), *number = getenv(launchers[i].rank);
    if (!size || !number) continue;
    *rank = atoi(number);
    return atoi(size);
  }
  return 0;
}

/* If some ranks close their contexts and others do not, they can do nothing together any more. */
static void find_closing(const struct sl__report *all, int size, struct sl__first_report *result) {
  int closing = 0, first = -1;
  for (int r = 0; r < size; r++) {
    closing += all[r].status == SL__REPORT_CLOSES;
    if (all[r].status == SL__REPORT_CLOSES && first < 0) first = r;
  }
  if (!closing || closing == size) return;
  *result = (struct sl__first_report){.report.status = SL_LOST, .rank = first};
  snprintf(result->report.text, sizeof result->report.text,
           "it has closed its context while other ranks go on");
}

void sl__report_first(const struct sl__report *all, int size, struct sl__first_report *first) {
  *first = (struct sl__first_report){.rank = -1};
  for (int r = 0; r < size && first->rank < 0; r++)
    if (all[r].status != SL_OK && all[r].status != SL__REPORT_CLOSES)
      *first = (struct sl__first_report){all[r], r};
  if (first->rank < 0) find_closing(all, size, first);
}

void sl__report_check(struct sl__first_report *first, int size) {
  struct sl__report *report = &first->report;
  report->text[sizeof report->text - 1] = '\0';
  if (first->rank < 0 || first->rank >= size) first->rank = -1;
  bool known = report->status > SL_OK && report->status <= SL_UNSUPPORTED;
  if (first->rank >= 0 && !known) report->status = SL_LOST;
}

/* All ranks get the first rank's report that is not SL_OK; *from is that rank, or -1. */
static enum sl_status first_failure(struct sl__net *net, struct sl__report *report, int *from) {
  enum sl_status status;
  struct sl__first_report first = {.rank = -1};
  int size = sl__net_size(net);
  struct sl__report *all = sl__net_rank(net) ? NULL : sl__alloc((size_t)size, sizeof *all, "ranks");
  if (!sl__net_rank(net) && !all) return SL_NO_MEMORY;
  SL__TRY(sl__net_gather(net, report, sizeof *report, all));
  if (all) sl__report_first(all, size, &first);
  SL__TRY(sl__net_broadcast(net, &first, sizeof first));
  sl__report_check(&first, size);
  *report = first.report;
  *from = first.rank;
out:
  free(all);
  return status;
}

enum sl_status sl__net_barrier(struct sl__net *net) {
  struct sl__report report = {.status = SL_OK};
  int from;
  if (sl__net_size(net) == 1) return SL_OK;
  enum sl_status status = first_failure(net, &report, &from);
  if (status != SL_OK || from < 0) return status;
  return sl__fail(report.status, "rank %d: %s", from, report.text);
}

enum sl_status sl__net_final_barrier(struct sl__net *net) {
  struct sl__report report = {.status = SL__REPORT_CLOSES};
  int from = -1;
  if (sl__net_size(net) == 1) return SL_OK;
  enum sl_status status = first_failure(net, &report, &from);
  if (status != SL_OK || from < 0) return status;
  return sl__fail(SL_LOST, "rank %d: %s", from, report.text);
}

enum sl_status sl__net_sync_status(struct sl__net *net, enum sl_status status, const char *why) {
  struct sl__report report = {.status = (int32_t)status};
  int from;
  if (sl__net_size(net) == 1 || status == SL_LOST) return status;
  snprintf(report.text, sizeof report.text, "%s", status == SL_OK ? "" : why);
  enum sl_status result = first_failure(net, &report, &from);
  if (result != SL_OK || from < 0) return result;
  if (from == sl__net_rank(net)) return sl__fail(report.status, "%s", report.text);
  return sl__fail(report.status, "rank %d: %s", from, report.text);
}

/* The first line in which two texts differ; empty where the shorter text has ended. */
static void differing_line(const char *a, const char *b, char *in_a, char *in_b, size_t size) {
  for (;;) {
    size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
    if (n != m || memcmp(a, b, n) != 0 || !*a || !*b) {
      snprintf(in_a, size, "%.*s", (int)n, a);
      snprintf(in_b, size, "%.*s", (int)m, b);
      return;
    }
    a += n + (a[n] == '\n');
    b += m + (b[m] == '\n');
  }
}

static enum sl_status compare(const char *theirs, const char *mine, int rank) {
  char in_theirs[200], in_mine[200];
  if (!strcmp(theirs, mine)) return SL_OK;
  differing_line(theirs, mine, in_theirs, in_mine, sizeof in_mine);
  return sl__fail(
      SL_BAD_ARGUMENT, "the ranks were not started alike: rank 0 has \"%s\", rank %d has \"%s\"",
      *in_theirs ? in_theirs : "nothing more", rank, *in_mine ? in_mine : "nothing more");
}

/* Ranks send tensors in their byte order. */
enum sl_status sl__net_agree_build(struct sl__net *net) {
  const uint16_t one = 1;
  char lines[200];
  snprintf(lines, sizeof lines, "version %s\nbyte order %s\n", PACKAGE_VERSION,
           *(const char *)&one ? "little" : "big");
  return sl__net_agree(net, lines);
}

enum sl_status sl__lines_length(const char digits[SL__LINES_DIGITS], size_t *length) {
  const int64_t most = 1 << 30; /* bytes; a model of a million layers has fewer */
  int64_t value = 0;
  *length = 0;
  if (!memchr(digits, '\0', SL__LINES_DIGITS) || !sl__parse_whole(digits, 0, most, &value))
    return sl__fail(SL_LOST, "rank 0 has sent a number that is none");
  *length = (size_t)value;
  return SL_OK;
}

enum sl_status sl__net_agree(struct sl__net *net, const char *lines) {
  enum sl_status status;
  char digits[SL__LINES_DIGITS]; /* as text: the machines' byte orders may differ */
  size_t length;
  char *first = NULL;
  if (sl__net_size(net) == 1) return SL_OK;
  snprintf(digits, sizeof digits, "%zu", strlen(lines));
  SL__TRY(sl__net_broadcast(net, digits, sizeof digits));
  SL__TRY(sl__lines_length(digits, &length));
  first = sl__alloc(length + 1, 1, "rank 0's options");
  SL__TRY(sl__net_sync_status(net, first ? SL_OK : SL_NO_MEMORY, sl_error()));
  if (!sl__net_rank(net)) memcpy(first, lines, length);
  status = sl__net_broadcast(net, first, length);
  if (status == SL_OK) status = compare(first, lines, sl__net_rank(net));
  /* all ranks fail with the message of the first rank that differs */
  struct sl__report report = {.status = (int32_t)status};
  int from;
  if (status == SL_LOST) goto out;
  if (status != SL_OK) snprintf(report.text, sizeof report.text, "%s", sl_error());
  SL__TRY(first_failure(net, &report, &from));
  if (from >= 0) status = sl__fail(report.status, "%s", report.text);
out:
  free(first);
  return status;
}

enum sl_status sl__net_any(struct sl__net *net, bool *flag) {
  enum sl_status status;
  int size = sl__net_size(net);
  uint8_t any = *flag, *all = sl__net_rank(net) ? NULL : sl__alloc((size_t)size, 1, "ranks");
  if (!sl__net_rank(net) && !all) return SL_NO_MEMORY;
  SL__TRY(sl__net_gather(net, &any, sizeof any, all));
  for (int r = 0; all && r < size; r++) any |= all[r];
  status = sl__net_broadcast(net, &any, sizeof any);
  *flag = any != 0;
out:
  free(all);
  return status;
}
