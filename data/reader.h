/* The type of a reader: a row of data/readers.def. A reader opens one kind of dataset, by name or
 * folder. */
#ifndef SL_DATA_READER_H
#define SL_DATA_READER_H

#include <starling/data.h>

struct sl__reader {
  /* for help texts and error messages; `generated` says which functions below are set */
  struct sl_dataset_format format;
  enum sl_status (*generate)(int64_t count, uint64_t seed, bool train, struct sl_dataset **dataset);
  /* Does the folder have files of this format? */
  bool (*is_in)(const char *folder);
  enum sl_status (*open)(const char *folder, bool train, struct sl_dataset **dataset);
};

#define SL__READER(name) extern const struct sl__reader sl__##name##_reader;
#include "data/readers.def"
#undef SL__READER

#endif
