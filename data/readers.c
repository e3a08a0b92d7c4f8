/* Datasets by name: the table of readers. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "data/reader.h"
#include "data/split.h"

static const struct sl__reader *const readers[] = {
#define SL__READER(name) &sl__##name##_reader,
#include "data/readers.def"
#undef SL__READER
};

enum { READERS = sizeof readers / sizeof *readers };

const struct sl_dataset_format *sl_dataset_format(int i) {
  return i >= 0 && i < READERS ? &readers[i]->format : NULL;
}

/* Lists the names of the generated sets, or the file formats with their files: "A, B <word> C". */
static const char *names_of(bool generated, const char *word, char *list, size_t size) {
  int last = READERS - 1;
  size_t used = 0;
  while (readers[last]->format.generated != generated) last--;
  for (int i = 0; i <= last && used < size; i++) {
    const struct sl_dataset_format *f = &readers[i]->format;
    if (f->generated != generated) continue;
    const char *before = !used ? "" : i == last ? word : ", ";
    used += (size_t)(generated ? snprintf(list + used, size - used, "%s\"%s\"", before, f->name)
                               : snprintf(list + used, size - used, "%s%s (%s)", before, f->name,
                                          f->files));
  }
  return list;
}

static const struct sl__reader *find(const char *name) {
  for (int i = 0; i < READERS; i++)
    if (readers[i]->generate && !strcmp(name, readers[i]->format.name)) return readers[i];
  for (int i = 0; i < READERS; i++)
    if (readers[i]->is_in && readers[i]->is_in(name)) return readers[i];
  return NULL;
}

const struct sl_dataset_format *sl_dataset_detect(const char *name) {
  SL__NEEDS_OR(NULL, name);
  const struct sl__reader *found = find(name);
  return found ? &found->format : NULL;
}

/* Of a folder without permission no reader finds its files. Returns errno's value, or 0. */
static int read_error(const char *name) {
  struct stat info;
  if (stat(name, &info) != 0) return errno;
  int mode = S_ISDIR(info.st_mode) ? R_OK | X_OK : R_OK;
  return faccessat(AT_FDCWD, name, mode, AT_EACCESS) == 0 ? 0 : errno;
}

static enum sl_status fail_unknown(const char *name) {
  char list[1024];
  int error = read_error(name);
  if (error && error != ENOENT && error != ENOTDIR)
    return sl__fail(SL_IO, "%s: cannot be opened: %s", name, strerror(error));
  if (error)
    return sl__fail(SL_IO, "%s: no such folder or file; name one that holds a dataset, or %s", name,
                    names_of(true, " or ", list, sizeof list));
  return sl__fail(SL_IO, "%s: holds neither %s; is it the right folder or file?", name,
                  names_of(false, " nor ", list, sizeof list));
}

/* Options that the format does not have are refused, not ignored. `targets` and `raw_targets` go
 * with every format: the caller's loss asks for them. */
static enum sl_status check_options(const char *name, const struct sl__reader *reader,
                                    const struct sl_reader_options *o) {
  const struct {
    unsigned use;
    bool given;
    const char *what;
  } uses[] = {{SL__USES_INPUTS, o->inputs, "name of inputs"},
              {SL__USES_INPUTS, o->tokens, "tokens"},
              {SL__USES_TARGET, o->target, "target"},
              {SL__USES_IGNORE, o->ignore, "ignored columns"},
              {SL__USES_MISSING, o->missing != SL_MISSING_REFUSE, "rule for missing values"},
              {SL__USES_VALIDATION, o->raw, "raw values"},
              {SL__USES_SIZE, o->height || o->width, "size of pictures"},
              {SL__USES_SKIP_BAD, o->skip_bad, "skipping of pictures"},
              {SL__USES_INPUTS_ONLY, o->inputs_only, "inputs without targets"}};
  if ((unsigned)o->missing > SL_MISSING_MEAN)
    return sl__fail(SL_BAD_ARGUMENT, "%s: there is no rule %d for missing values (SL_MISSING_*)",
                    name, (int)o->missing);
  if ((unsigned)o->targets > SL_TARGET_VALUES)
    return sl__fail(SL_BAD_ARGUMENT, "%s: there is no kind %d of targets (SL_TARGET_*)", name,
                    (int)o->targets);
  if (o->validation && !(reader->uses & SL__USES_VALIDATION))
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: has a test set of its own, and takes no validation part; leave the share, "
                    "fold or file of the validation out",
                    name);
  for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
    if (uses[i].given && !(reader->uses & uses[i].use))
      return sl__fail(SL_BAD_ARGUMENT, "%s: is %s, which takes no %s; leave this option out", name,
                      reader->format.name, uses[i].what);
  return SL_OK;
}

/* A user's own files: the training part of them, or what is held back. */
static enum sl_status read_part(const struct sl__reader *reader, const char *name,
                                const struct sl_reader_options *options, bool train,
                                struct sl_dataset **dataset) {
  if (options->inputs_only) return reader->read(name, options, SL__PART_WHOLE, NULL, dataset);
  bool apart = reader->has_parts && reader->has_parts(name, options);
  bool other = options->validation && !sl__is_share(options->validation);
  struct sl_dataset *whole = NULL, *test = NULL;
  if (apart && options->validation)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: has a test set of its own; leave the choice of a validation part out",
                    name);
  enum sl_status status =
      reader->read(name, options, apart ? SL__PART_TRAIN : SL__PART_WHOLE, NULL, &whole);
  if (status != SL_OK) return status;
  if (apart)
    status = reader->read(name, options, SL__PART_TEST, whole, &test);
  else if (other)
    status = reader->read(options->validation, options, SL__PART_WHOLE, whole, &test);
  if (status == SL_OK) return sl__split(whole, test, options, train, dataset);
  sl_dataset_free(whole);
  return status;
}

enum sl_status sl_dataset_read(const char *name, const struct sl_reader_options *options,
                               bool train, struct sl_dataset **dataset) {
  SL__NEEDS(name, dataset);
  static const struct sl_reader_options defaults = {0};
  if (!options) options = &defaults;
  const struct sl__reader *reader = find(name);
  if (!reader) return fail_unknown(name);
  enum sl_status status = check_options(name, reader, options);
  if (status != SL_OK) return status;
  if (reader->generate) return reader->generate(0, options->seed, train, dataset);
  if (reader->open) return reader->open(name, train, dataset);
  return read_part(reader, name, options, train, dataset);
}

enum sl_status sl_dataset_open(const char *name, uint64_t seed, bool train,
                               struct sl_dataset **dataset) {
  SL__NEEDS(name, dataset);
  return sl_dataset_read(name, &(struct sl_reader_options){.seed = seed}, train, dataset);
}
