/* Tables: the first byte says how, the rest is the text. A table that is read is then read again
 * as its own validation, which it must fit. */
#include "data/csv.h"
#include "tests/fuzz/fuzz.h"

/* The parser changes its bytes: each call gets a copy. */
static enum sl_status parse(const uint8_t *bytes, size_t size,
                            const struct sl_reader_options *options, const struct sl__csv *like,
                            struct sl__csv *csv) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) abort();
  memcpy(copy, bytes, size);
  enum sl_status status = sl__csv_parse("t.csv", copy, size, options, like, csv);
  free(copy);
  return status;
}

FUZZER(csv)(const uint8_t *bytes, size_t size) {
  static const char *const texts[] = {"down", "up"};
  static const struct sl_column columns[] = {{.name = "a", .missing = true},
                                             {.name = "b", .text_count = 2, .texts = texts}};
  struct sl__csv csv, again;
  if (size < 1) return 0;
  unsigned how = bytes[0];
  const struct sl_reader_options options = {.target = how & 1 ? "y" : "2",
                                            .ignore = how & 2 ? "a" : NULL,
                                            .targets = (enum sl_target_kind)((how >> 2 & 3) % 3),
                                            .missing = (enum sl_missing)((how >> 4 & 3) % 3),
                                            .inputs_only = how & 64,
                                            .column_count = how & 128 ? 2 : 0,
                                            .columns = how & 128 ? columns : NULL};
  if (parse(bytes + 1, size - 1, &options, NULL, &csv) == SL_OK) {
    const struct sl__csv *like = options.inputs_only ? NULL : &csv;
    if (parse(bytes + 1, size - 1, &options, like, &again) != SL_OK) abort();
    for (int i = 0; i < csv.ordered; i++)
      if (csv.order[i] < 0 || csv.order[i] >= csv.columns) abort();
    if (again.rows != csv.rows) abort();
    for (int64_t i = 0; i < csv.rows * csv.columns; i++)
      if (memcmp(&csv.values[i], &again.values[i], sizeof *csv.values) != 0) abort();
    sl__csv_free(&again);
  }
  sl__csv_free(&csv);
  return 0;
}
