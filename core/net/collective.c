/* What all ranks must have alike, and failures that one has for all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/net/net.h"

int sl__launched(int *rank) {
  static const struct {
    const char *size, *rank;
  } launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                   {"PMI_SIZE", "PMI_RANK"},
                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  *rank = 0;
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const char *size = getenv(launchers[i].size), *number = getenv(launchers[i].rank);
    if (!size || !number) continue;
    *rank = atoi(number);
    return atoi(size);
  }
  return 0;
}

/* What one rank has to tell. */
struct word {
  int32_t status;
  char text[508];
};

enum { PARTS = -1 }; /* status of a rank that closes its context */

/* Some part, others go on: they can do nothing together any more. */
static void find_parting(int size, const struct word *all, struct word *word, int32_t *rank) {
  int parting = 0, first = -1;
  for (int r = 0; r < size; r++) {
    parting += all[r].status == PARTS;
    if (all[r].status == PARTS && first < 0) first = r;
  }
  if (!parting || parting == size) return;
  *word = (struct word){.status = SL_LOST};
  snprintf(word->text, sizeof word->text, "it has closed its context while others go on");
  *rank = first;
}

/* The first rank's word that is not SL_OK becomes that of all; *from is that rank, or -1. */
static enum sl_status first_word(struct sl__net *net, struct word *word, int *from) {
  enum sl_status status;
  struct {
    struct word word;
    int32_t rank;
  } first = {.rank = -1};
  int size = sl__net_size(net);
  struct word *all = sl__net_rank(net) ? NULL : sl__alloc((size_t)size, sizeof *all, "ranks");
  if (!sl__net_rank(net) && !all) return SL_NO_MEMORY;
  SL__TRY(sl__net_gather(net, word, sizeof *word, all));
  for (int r = 0; all && r < size && first.rank < 0; r++)
    if (all[r].status != SL_OK && all[r].status != PARTS) {
      first.word = all[r];
      first.rank = r;
    }
  if (all && first.rank < 0) find_parting(size, all, &first.word, &first.rank);
  SL__TRY(sl__net_broadcast(net, &first, sizeof first));
  *word = first.word;
  *from = first.rank;
out:
  free(all);
  return status;
}

enum sl_status sl__net_barrier(struct sl__net *net) {
  struct word word = {.status = SL_OK};
  int from;
  if (sl__net_size(net) == 1) return SL_OK;
  enum sl_status status = first_word(net, &word, &from);
  if (status != SL_OK || from < 0) return status;
  return sl__fail(word.status, "rank %d: %s", from, word.text);
}

enum sl_status sl__net_part(struct sl__net *net) {
  struct word word = {.status = PARTS};
  int from = -1;
  if (sl__net_size(net) == 1) return SL_OK;
  enum sl_status status = first_word(net, &word, &from);
  if (status != SL_OK || from < 0) return status;
  return sl__fail(SL_LOST, "rank %d: %s", from, word.text);
}

enum sl_status sl__net_sync_status(struct sl__net *net, enum sl_status status, const char *why) {
  struct word word = {.status = (int32_t)status};
  int from;
  if (sl__net_size(net) == 1 || status == SL_LOST) return status;
  snprintf(word.text, sizeof word.text, "%s", status == SL_OK ? "" : why);
  enum sl_status result = first_word(net, &word, &from);
  if (result != SL_OK || from < 0) return result;
  if (from == sl__net_rank(net)) return sl__fail(word.status, "%s", word.text);
  return sl__fail(word.status, "rank %d: %s", from, word.text);
}

/* The first line in which two texts differ; empty at the end of the shorter. */
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

/* Tensors travel as they are in memory. */
enum sl_status sl__net_agree_build(struct sl__net *net) {
  const uint16_t one = 1;
  char lines[200];
  snprintf(lines, sizeof lines, "version %s\nbyte order %s\n", PACKAGE_VERSION,
           *(const char *)&one ? "little" : "big");
  return sl__net_agree(net, lines);
}

enum sl_status sl__net_agree(struct sl__net *net, const char *lines) {
  enum sl_status status;
  char digits[24]; /* in letters: machines may differ in their order of bytes, too */
  if (sl__net_size(net) == 1) return SL_OK;
  snprintf(digits, sizeof digits, "%zu", strlen(lines));
  SL__TRY(sl__net_broadcast(net, digits, sizeof digits));
  unsigned long length = strtoul(digits, NULL, 10);
  char *first = sl__alloc(length + 1, 1, "rank 0's options");
  if (!first) return SL_NO_MEMORY;
  if (!sl__net_rank(net)) memcpy(first, lines, length);
  status = sl__net_broadcast(net, first, length);
  if (status == SL_OK) status = compare(first, lines, sl__net_rank(net));
  free(first);
  /* who differs tells all, in the same words */
  struct word word = {.status = (int32_t)status};
  int from;
  if (status == SL_LOST) return status;
  if (status != SL_OK) snprintf(word.text, sizeof word.text, "%s", sl_error());
  SL__TRY(first_word(net, &word, &from));
  if (from >= 0) status = sl__fail(word.status, "%s", word.text);
out:
  return status;
}
