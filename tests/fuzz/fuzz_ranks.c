/* What ranks get from each other by MPI and read as numbers and texts: the head of a push to a
 * parameter server, reports of failures, the length of rank 0's lines. The first byte says which.
 */
#include "core/net/collective.h"
#include "parallel/params/parameter_server_state.h"
#include "tests/fuzz/fuzz.h"

enum { RANKS = 3 };

static void read_push(const uint8_t *bytes, size_t size) {
  float head[SL__HEAD_SIZE];
  enum sl__push_kind kind;
  int64_t step;
  fuzz_take(&bytes, &size, head, sizeof head);
  bool good = sl__push_head(head, &kind, &step);
  if ((int)kind < SL__PUSH_PULL || kind > SL__PUSH_CLOSE || (good && step < 0)) abort();
  if (sl__whole_in_message(head[SL__HEAD_LR], SL__MOST_STEPS) < -1) abort();
}

static void read_reports(const uint8_t *bytes, size_t size) {
  struct sl__report all[RANKS];
  struct sl__first_report first, received;
  fuzz_take(&bytes, &size, all, sizeof all);
  fuzz_take(&bytes, &size, &received, sizeof received);
  sl__report_first(all, RANKS, &first);
  if (first.rank < -1 || first.rank >= RANKS) abort();
  const struct sl__first_report *reports[] = {&first, &received};
  for (int i = 0; i < 2; i++) {
    struct sl__first_report report = *reports[i];
    sl__report_check(&report, RANKS);
    if (strlen(report.report.text) >= sizeof report.report.text) abort();
    if (report.rank < -1 || report.rank >= RANKS) abort();
    if (report.rank >= 0 && *sl_status_name((enum sl_status)report.report.status) == '?') abort();
  }
}

FUZZER(ranks)(const uint8_t *bytes, size_t size) {
  char digits[SL__LINES_DIGITS];
  size_t length;
  uint8_t kind;
  fuzz_take(&bytes, &size, &kind, 1);
  switch (kind % 3) {
    case 0: read_push(bytes, size); break;
    case 1: read_reports(bytes, size); break;
    default:
      fuzz_take(&bytes, &size, digits, sizeof digits);
      if (sl__lines_length(digits, &length) == SL_OK && length != strtoul(digits, NULL, 10))
        abort();
  }
  return 0;
}
