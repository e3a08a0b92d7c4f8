#include "tools/common/dataset_names.h"

#include <stdbool.h>
#include <starling.h>

/* Format i of those of the kind; NULL behind the last. */
static const struct sl_dataset_format *find_format(bool generated, bool own, int i) {
  const struct sl_dataset_format *format;
  for (int f = 0; (format = sl_dataset_format(f)); f++)
    if (format->generated == generated && format->own == own && i-- == 0) return format;
  return NULL;
}

const char *generated_dataset(int i) {
  const struct sl_dataset_format *format = find_format(true, false, i);
  return format ? format->name : NULL;
}

const char *folder_dataset(int i) {
  const struct sl_dataset_format *format = find_format(false, false, i);
  return format ? format->name : NULL;
}

const char *own_dataset(int i) {
  const struct sl_dataset_format *format = find_format(false, true, i);
  return format ? format->files : NULL;
}
