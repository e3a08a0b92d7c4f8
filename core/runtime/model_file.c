#include "core/runtime/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/numbers.h"
#include "core/runtime/log.h"

#define DAMAGED ".damaged"

enum { FORMAT_VERSION = 45, WORD = 64 };

/* ---- the format (StarPU's perfmodel_history.c), without its comments ---- */

static bool read_word(FILE *f, char word[WORD]) {
  int c = EOF;
  while (fscanf(f, " ") != EOF && (c = getc(f)) == '#')
    if (fscanf(f, "%*[^\n]") == EOF) return false;
  if (feof(f) || ferror(f)) return false;
  ungetc(c, f);
  return fscanf(f, "%63s", word) == 1;
}

static bool read_count(FILE *f, int64_t *count) {
  char word[WORD];
  return read_word(f, word) && sl__parse_whole(word, 0, INT32_MAX, count);
}

/* Without <, which traps at nan in a program that wants that: files may have nan. */
static bool is_negative(double value) { return signbit(value) && value != 0 && !isnan(value); }

/* A letter a field: u digits, x hexadecimal digits, r any number, p one that is not negative, q one
 * that is not negative or not known (nan). */
static bool fits(const char *word, char letter) {
  char *end;
  if (letter == 'u' || letter == 'x') {
    const char *digits = letter == 'u' ? "0123456789" : "0123456789abcdef";
    return !word[strspn(word, digits)];
  }
  double value = sl__strtod(word, &end);
  bool is_low =
      letter == 'p' ? isnan(value) || is_negative(value) : letter == 'q' && is_negative(value);
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

/* The regressions, then the measurements, a line for each size of a task. */
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
static bool is_model_damaged(FILE *f) {
  int64_t version, combinations;
  if (fseek(f, 0, SEEK_END) != 0 || ftell(f) == 0) return false;
  if (!ends_in_newline(f) || !read_count(f, &version)) return true;
  if (version != FORMAT_VERSION) return false;
  if (!read_count(f, &combinations)) return true;
  while (combinations-- > 0)
    if (!read_combination(f)) return true;
  return false;
}

/* ---- the formats of a machine's buses (StarPU's perfmodel_bus.c) ---- */

/* Numbers of devices, each before a comment; StarPU measures anew if all but the first are lacking.
 */
static bool is_config_damaged(FILE *f) {
  int64_t count;
  return !read_count(f, &count);
}

/* Of a line; -1: a word after `texts` of them is no number. */
static int count_words(char *line, int texts) {
  int words = 0;
  char *rest;
  for (char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest))
    if (words++ >= texts && !fits(word, 'u')) return -1;
  return words;
}

/* "# GPU NUMA0 NUMA1", then a line for each GPU: its number and as many nodes. */
static bool is_affinity_damaged(FILE *f) {
  char *line = NULL;
  size_t room = 0;
  bool whole = ends_in_newline(f) && getline(&line, &room, f) > 0;
  int columns = whole ? count_words(line, INT_MAX) - 1 : 0;
  while (whole && getline(&line, &room, f) > 0) whole = count_words(line, 0) == columns;
  free(line);
  return !whole;
}

/* ---- the file ---- */

typedef bool damage_check(FILE *f);

/* Locked until it is closed: StarPU locks it while it writes it. A file system may have no locks:
 * there a file that another process just writes is given time. */
static FILE *open_damaged(const char *path, damage_check *is_damaged) {
  const struct timespec pause = {.tv_nsec = 100000000};
  for (int look = 0;; look++) {
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    FILE *f = fopen(path, "re");
    if (!f) return NULL;
    bool is_locked = fcntl(fileno(f), F_SETLKW, &whole) == 0;
    bool damaged = is_damaged(f) && !ferror(f);
    if (damaged && (is_locked || look)) return f;
    fclose(f);
    if (!damaged) return NULL;
    nanosleep(&pause, NULL);
  }
}

/* Another process may have renamed the file before this one had its lock. */
static bool is_at(const char *path, FILE *f) {
  struct stat there, opened;
  return stat(path, &there) == 0 && fstat(fileno(f), &opened) == 0 &&
         there.st_dev == opened.st_dev && there.st_ino == opened.st_ino;
}

static enum sl_status set_aside(struct sl_context *context, const char *path) {
  char aside[PATH_MAX + sizeof DAMAGED];
  snprintf(aside, sizeof aside, "%s" DAMAGED, path);
  int error = rename(path, aside) == 0 ? 0 : errno;
  if (error == ENOENT) return SL_OK; /* another process has renamed it */
  if (error)
    return sl__fail(SL_IO,
                    "%s: this performance model is damaged and cannot be renamed: %s; "
                    "remove the file",
                    path, strerror(error));
  sl__log(context, SL_LOG_WARNING,
          "%s: this performance model was damaged and is measured anew; the file is now %s", path,
          strrchr(aside, '/') + 1);
  return SL_OK;
}

/* *found: was it damaged? */
static enum sl_status check_file(struct sl_context *context, const char *path,
                                 damage_check *is_damaged, bool *found) {
  enum sl_status status = SL_OK;
  FILE *f = open_damaged(path, is_damaged);
  *found = f != NULL;
  if (!f) return SL_OK;
  if (is_at(path, f)) status = set_aside(context, path);
  fclose(f);
  return status;
}

enum sl_status sl__model_file_check(struct sl_context *context, const char *symbol) {
  enum sl_status status = SL_OK;
  char path[PATH_MAX];
  for (bool found = true; found && status == SL_OK;) {
    starpu_perfmodel_get_model_path(symbol, path, sizeof path);
    if (!*path) break;
    status = check_file(context, path, is_model_damaged, &found);
  }
  return status;
}

/* As StarPU names it, but for STARPU_MPI_HOSTNAMES, which needs a rank. */
static void host_name(char *name, size_t size) {
  const char *own = getenv("STARPU_HOSTNAME");
  bool is_own = own && *own;
  memset(name, 0, size);
  if (is_own)
    snprintf(name, size - 1, "%s", own);
  else if (gethostname(name, size - 1) == 0)
    name[strcspn(name, ".")] = '\0';
}

/* StarPU writes the configuration last, and measures all anew where it is missing. */
enum sl_status sl__model_file_check_buses(struct sl_context *context, const char *folder) {
  static const struct {
    const char *ending;
    damage_check *is_damaged;
  } files[] = {{"config", is_config_damaged}, {"affinity", is_affinity_damaged}};
  enum sl_status status = SL_OK;
  char host[65], path[PATH_MAX];
  bool found;
  host_name(host, sizeof host);
  for (size_t i = 0; i < sizeof files / sizeof *files && status == SL_OK; i++) {
    int length = snprintf(path, sizeof path, "%s/bus/%s.%s", folder, host, files[i].ending);
    if (length >= PATH_MAX || access(path, F_OK) != 0) break;
    status = check_file(context, path, files[i].is_damaged, &found);
    if (found) break;
  }
  return status;
}
