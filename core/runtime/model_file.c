#include "core/runtime/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "core/runtime/log.h"

#define DAMAGED ".damaged"

enum { FORMAT_VERSION = 45, WORD = 64 };

/* ---- the format (StarPU's perfmodel_history.c), without its comments ---- */

static bool read_word(FILE *f, char word[WORD]) {
  int c;
  while (fscanf(f, " ") != EOF && (c = getc(f)) == '#')
    if (fscanf(f, "%*[^\n]") == EOF) return false;
  if (feof(f)) return false;
  ungetc(c, f);
  return fscanf(f, "%63s", word) == 1;
}

static bool read_count(FILE *f, int64_t *count) {
  char word[WORD];
  return read_word(f, word) && sl__parse_whole(word, 0, INT32_MAX, count);
}

/* A letter a field: u digits, x hexadecimal digits, r any number, p one that is not negative, q one
 * that is not negative or not known (nan). */
static bool fits(const char *word, char letter) {
  char *end;
  if (letter == 'u' || letter == 'x') {
    const char *digits = letter == 'u' ? "0123456789" : "0123456789abcdef";
    return !word[strspn(word, digits)];
  }
  double value = sl__strtod(word, &end);
  bool is_low = letter == 'p' ? !(value >= 0) : letter == 'q' && value < 0;
  return !*end && !is_low;
}

static bool read_fields(FILE *f, const char *letters) {
  char word[WORD];
  for (; *letters; letters++)
    if (!read_word(f, word) || !fits(word, *letters)) return false;
  return true;
}

static bool read_times(FILE *f, int64_t times, const char *letters) {
  while (times-- > 0)
    if (!read_fields(f, letters)) return false;
  return true;
}

/* The regressions, then what was measured, a line for each size of a task. */
static bool read_implementation(FILE *f) {
  int64_t entries, coefficients;
  return read_count(f, &entries) && read_fields(f, "rrrrrruuurrr") &&
         read_count(f, &coefficients) && read_times(f, coefficients, "r") &&
         read_times(f, entries, "xuqppppu");
}

/* The devices, each with type, number and cores, and the implementations for them. */
static bool read_combination(FILE *f) {
  int64_t devices, implementations;
  if (!read_count(f, &devices) || !read_times(f, devices, "uuu")) return false;
  if (!read_count(f, &implementations)) return false;
  while (implementations-- > 0)
    if (!read_implementation(f)) return false;
  return true;
}

static bool ends_in_newline(FILE *f) {
  bool ends = fseek(f, -1, SEEK_END) == 0 && getc(f) == '\n';
  rewind(f);
  return ends;
}

/* An empty file and one of another version are left to StarPU. */
static bool is_damaged(FILE *f) {
  int64_t version, combinations;
  if (fseek(f, 0, SEEK_END) != 0 || ftell(f) == 0) return false;
  if (!ends_in_newline(f) || !read_count(f, &version)) return true;
  if (version != FORMAT_VERSION) return false;
  if (!read_count(f, &combinations)) return true;
  while (combinations-- > 0)
    if (!read_combination(f)) return true;
  return false;
}

/* ---- the file ---- */

/* Another process may write it: StarPU locks it for that. */
static bool find_damaged(const char *symbol, char *path, size_t size) {
  struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  starpu_perfmodel_get_model_path(symbol, path, size);
  FILE *f = *path ? fopen(path, "re") : NULL;
  if (!f) return false;
  fcntl(fileno(f), F_SETLKW, &whole); /* a file system without locks is read without one */
  bool damaged = is_damaged(f) && !ferror(f);
  fclose(f);
  return damaged;
}

enum sl_status sl__model_file_check(struct sl_context *context, const char *symbol) {
  char path[PATH_MAX], aside[PATH_MAX + sizeof DAMAGED];
  while (find_damaged(symbol, path, sizeof path)) {
    snprintf(aside, sizeof aside, "%s" DAMAGED, path);
    if (rename(path, aside) != 0 && errno != ENOENT) /* or another process has renamed it */
      return sl__fail(SL_IO,
                      "%s: this performance model is damaged and cannot be renamed: %s; "
                      "remove the file",
                      path, strerror(errno));
    sl__log(context, SL_LOG_WARNING,
            "%s: this performance model was damaged and is measured anew; the file is now %s", path,
            strrchr(aside, '/') + 1);
  }
  return SL_OK;
}
