#include "tools/common/dataset_names.h"

#include <stdbool.h>
#include <starling.h>

static const char *dataset_name(bool generated, int i) {
  const struct sl_dataset_format *format;
  for (int f = 0; (format = sl_dataset_format(f)); f++)
    if (format->generated == generated && i-- == 0) return format->name;
  return NULL;
}

const char *generated_dataset(int i) { return dataset_name(true, i); }

const char *folder_dataset(int i) { return dataset_name(false, i); }
