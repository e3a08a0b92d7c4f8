#include "tools/train/class_weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/numbers.h"
#include "tools/train/failure.h"

static const char balanced[] = "balanced";
static const char separators[] = ", \t\r\n";

/* Reads numbers from a text, which is changed; where: the option's value, for messages. */
static int read_numbers(struct session *session, char *text, int classes) {
  const char *where = session->cli.class_weights;
  char *rest = text;
  int count = 0;
  for (char *word; (word = strsep(&rest, separators));) {
    double value;
    if (!*word) continue;
    if (!sl__parse_real(word, 0, 1e30, &value))
      return session_fail(session, EXIT_USAGE,
                          "--class-weights %s: number %d is '%.40s'; a weight is a number from 0",
                          where, count + 1, word);
    if (count < classes) session->class_weights[count] = (float)value;
    count++;
  }
  if (count == classes) return EXIT_DONE;
  return session_fail(session, EXIT_USAGE,
                      "--class-weights %s: %d numbers, but the data have %d classes; give one for "
                      "each",
                      where, count, classes);
}

/* A whole text file; NULL, with errno. */
static char *read_file(const char *path) {
  char *text = NULL;
  size_t size = 0;
  FILE *file = fopen(path, "re");
  if (!file) return NULL;
  ssize_t length = getdelim(&text, &size, '\0', file);
  int error = length >= 0 ? 0 : ferror(file) ? errno : EINVAL;
  fclose(file);
  if (!error) return text;
  free(text);
  errno = error;
  return NULL;
}

/* "1,2.5" are numbers, all else names a file. */
static int read_weights(struct session *session, int classes) {
  const char *option = session->cli.class_weights;
  bool listed = !option[strspn(option, "0123456789.eE+-,")];
  char *text = listed ? strdup(option) : read_file(option);
  if (!text)
    return session_fail(session, EXIT_USAGE,
                        "--class-weights %s: neither numbers nor a file of them (%s); give "
                        "balanced, a file, or numbers separated by commas",
                        option, errno == EINVAL ? "it is empty" : strerror(errno));
  int code = read_numbers(session, text, classes);
  free(text);
  return code;
}

int class_weights_open(struct session *session) {
  const struct sl_dataset_info *info = sl_dataset_info(session->train_set);
  const char *option = session->cli.class_weights;
  if (!option) return EXIT_DONE;
  if (session->loss.part_count)
    return session_fail(session, EXIT_USAGE,
                        "--class-weights: %s has several targets; the option is for one",
                        info->name);
  if (!sl_loss_takes_labels(&session->loss))
    return session_fail(session, EXIT_USAGE, "--class-weights: %s has targets, not classes",
                        info->name);
  session->class_weights = calloc((size_t)info->classes, sizeof *session->class_weights);
  if (!session->class_weights)
    return session_fail(session, EXIT_FAILED, "no memory for the classes' weights");
  session->loss.class_weights = session->class_weights;
  session->loss.class_count = info->classes;
  if (strcmp(option, balanced) != 0) return read_weights(session, info->classes);
  enum sl_status status = sl_class_weights(session->train_set, session->class_weights);
  return status == SL_OK ? EXIT_DONE : session_fail_library(session, status);
}
