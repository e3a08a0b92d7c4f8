/* The type of a reader: a row of data/readers.def. A reader opens one kind of dataset, by name,
 * folder or file. */
#ifndef SL_DATA_READER_H
#define SL_DATA_READER_H

#include <starling/data.h>

/* The members of struct sl_reader_options that a reader uses, besides the seed. */
enum sl__reader_use {
  SL__USES_INPUTS = 1,
  SL__USES_TARGET = 2,
  SL__USES_IGNORE = 4,
  SL__USES_MISSING = 8,
  SL__USES_VALIDATION = 16, /* and raw */
  SL__USES_SIZE = 32,
  SL__USES_SKIP_BAD = 64,
  SL__USES_INPUTS_ONLY = 128
};

/* Which of a user's files are read. */
enum sl__reader_part {
  SL__PART_WHOLE, /* all there are; they are split afterwards */
  SL__PART_TRAIN, /* files of a training set and of a test set lie side by side */
  SL__PART_TEST
};

struct sl__reader {
  /* for help texts and error messages; `generated` says which functions below are set */
  struct sl_dataset_format format;
  unsigned uses; /* of enum sl__reader_use */
  enum sl_status (*generate)(int64_t count, uint64_t seed, bool train, struct sl_dataset **dataset);
  /* Is it a folder, or file, of this format? */
  bool (*is_in)(const char *path);
  /* of formats that have training and test files of their own */
  enum sl_status (*open)(const char *folder, bool train, struct sl_dataset **dataset);

  /* Of users' own files, without `open`. Does the path hold a training set and a test set? */
  bool (*has_parts)(const char *path, const struct sl_reader_options *options);
  /* A set that is not normalised; sl__split (data/split.h) makes the parts of it. like: the
   * training's set, if this is another one, whose classes it must have; else NULL. */
  enum sl_status (*read)(const char *path, const struct sl_reader_options *options,
                         enum sl__reader_part part, const struct sl_dataset *like,
                         struct sl_dataset **dataset);
};

#define SL__READER(name) extern const struct sl__reader sl__##name##_reader;
#include "data/readers.def"
#undef SL__READER

#endif
