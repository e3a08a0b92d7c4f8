/* Datasets by name: the table of readers. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "data/reader.h"

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
  struct stat info;
  for (int i = 0; i < READERS; i++)
    if (readers[i]->generate && !strcmp(name, readers[i]->format.name)) return readers[i];
  if (stat(name, &info) != 0 || !S_ISDIR(info.st_mode)) return NULL;
  for (int i = 0; i < READERS; i++)
    if (readers[i]->open && readers[i]->is_in(name)) return readers[i];
  return NULL;
}

const struct sl_dataset_format *sl_dataset_detect(const char *name) {
  SL__NEEDS_OR(NULL, name);
  const struct sl__reader *found = find(name);
  return found ? &found->format : NULL;
}

enum sl_status sl_dataset_open(const char *name, uint64_t seed, bool train,
                               struct sl_dataset **dataset) {
  SL__NEEDS(name, dataset);
  char list[512];
  struct stat info;
  const struct sl__reader *reader = find(name);
  if (reader && reader->generate) return reader->generate(0, seed, train, dataset);
  if (reader) return reader->open(name, train, dataset);
  if (stat(name, &info) != 0 || !S_ISDIR(info.st_mode))
    return sl__fail(SL_IO, "%s: no such folder; name one that holds a dataset, or %s", name,
                    names_of(true, " or ", list, sizeof list));
  return sl__fail(SL_IO, "%s: holds neither %s; is it the right folder?", name,
                  names_of(false, " nor ", list, sizeof list));
}
