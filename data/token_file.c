/* Datasets of token files, mapped into memory: samples of equal length, one after another. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/dataset.h"

enum { HEADER_BYTES = 1024, HEADER_U16 = 20240520, HEADER_U32 = 20240801, HEADER_VERSION = 1 };

struct mapped_set {
  struct sl_dataset set;
  struct sl__mapping file;
  size_t width;         /* bytes of a token */
  int64_t count, first; /* tokens of the file; the first one of the part */
  const uint8_t *tokens;
};

static uint32_t read_u32(const uint8_t *b) {
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint32_t token_at(const struct mapped_set *set, int64_t i) {
  const uint8_t *b = set->tokens + (size_t)i * set->width;
  return set->width == 4 ? read_u32(b) : (uint32_t)b[0] | (uint32_t)b[1] << 8;
}

static enum sl_status fill(const struct sl_dataset *dataset, int64_t count, const int64_t *samples,
                           const struct sl__rows *rows) {
  const struct mapped_set *set = (const struct mapped_set *)dataset;
  int64_t steps = (int64_t)dataset->sample_size;
  int32_t *x = (int32_t *)(void *)rows->x, *labels = rows->labels;
  enum sl_status status = sl__file_map_check(dataset->info.name, &set->file);
  if (status != SL_OK) return status;
  for (int64_t row = 0; row < count; row++, x += steps, labels += steps)
    for (int64_t k = 0; k <= steps; k++) {
      int64_t i = set->first + samples[row] * steps + k;
      uint32_t token = token_at(set, i);
      if (token >= (uint32_t)dataset->info.classes)
        return sl__fail(SL_BAD_FILE,
                        "%s: token %lld is %lu, but the vocabulary has 0 to %d; is the file of "
                        "another type or another tokenizer?",
                        dataset->info.name, (long long)i, (unsigned long)token,
                        dataset->info.classes - 1);
      if (k < steps) x[k] = (int32_t)token;
      if (k > 0) labels[k - 1] = (int32_t)token;
    }
  return SL_OK;
}

static void free_mapped(struct sl_dataset *set) {
  sl__file_unmap(&((struct mapped_set *)set)->file);
}

static const struct sl__dataset_kind mapped_kind = {.fill = fill, .free = free_mapped};

/* The bytes of llm.c's header: 0 if there is none. */
static enum sl_status check_header(const char *path, const struct sl__mapping *file, size_t width,
                                   size_t *header) {
  uint32_t magic = file->size >= HEADER_BYTES ? read_u32(file->bytes) : 0;
  *header = 0;
  if (magic != HEADER_U16 && magic != HEADER_U32) return SL_OK;
  if ((magic == HEADER_U16 ? 2 : 4) != width)
    return sl__fail(SL_BAD_FILE, "%s: its header says u%d tokens, but u%d is asked for", path,
                    magic == HEADER_U16 ? 16 : 32, (int)width * 8);
  uint32_t version = read_u32(file->bytes + 4), count = read_u32(file->bytes + 8);
  if (version != HEADER_VERSION)
    return sl__fail(SL_BAD_FILE, "%s: its header is of version %lu; only version 1 is read", path,
                    (unsigned long)version);
  if ((file->size - HEADER_BYTES) / width != count)
    return sl__fail(SL_BAD_FILE,
                    "%s: its header promises %lu tokens, but it has %zu; was it written whole?",
                    path, (unsigned long)count, (file->size - HEADER_BYTES) / width);
  *header = HEADER_BYTES;
  return SL_OK;
}

/* Finds the tokens and the part of them: [first, first + *count). */
static enum sl_status find_part(const char *path, const struct sl_token_file_options *options,
                                struct mapped_set *set, int64_t *count) {
  size_t header;
  double to = options->to == 0 ? 1 : options->to;
  enum sl_status status = check_header(path, &set->file, set->width, &header);
  if (status != SL_OK) return status;
  if ((set->file.size - header) % set->width)
    return sl__fail(SL_BAD_FILE,
                    "%s: %zu bytes are no multiple of %zu, a u%d token; is it of another type or "
                    "cut short?",
                    path, set->file.size - header, set->width, (int)set->width * 8);
  if (!(options->from >= 0 && options->from < to && to <= 1))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the part from %g to %g; give shares from 0 to 1", path,
                    options->from, to);
  set->count = (int64_t)((set->file.size - header) / set->width);
  set->tokens = set->file.bytes + header;
  set->first = (int64_t)((double)set->count * options->from);
  *count = (int64_t)((double)set->count * to) - set->first;
  if (options->steps < 1 || options->steps > INT32_MAX || *count <= options->steps)
    return sl__fail(SL_BAD_ARGUMENT,
                    "%s: %lld tokens are too few for a sample of %lld and the one after it; take "
                    "fewer steps or more text",
                    path, (long long)*count, (long long)options->steps);
  return SL_OK;
}

enum sl_status sl_token_file_open(const char *path, const struct sl_token_file_options *options,
                                  struct sl_dataset **dataset) {
  SL__NEEDS(path, options, dataset);
  enum sl_status status;
  struct sl_dataset *set = NULL;
  struct mapped_set found = {.width = options->type == SL_TOKENS_U32 ? 4 : 2};
  int64_t count = 0;
  if (options->type != SL_TOKENS_U16 && options->type != SL_TOKENS_U32)
    return sl__fail(SL_BAD_ARGUMENT, "%s: token type %d is unknown; use SL_TOKENS_U16 or _U32",
                    path, (int)options->type);
  SL__TRY(sl__file_map(path, &found.file));
  SL__TRY(find_part(path, options, &found, &count));
  SL__TRY(sl__dataset_begin(&mapped_kind, sizeof found,
                            &(struct sl_dataset_info){.name = path,
                                                      .sample = SL_SHAPE(options->steps),
                                                      .count = (count - 1) / options->steps,
                                                      .classes = options->classes,
                                                      .tokens = true},
                            &set));
  found.set = *set;
  *(struct mapped_set *)set = found;
  *dataset = set;
  return SL_OK;
out:
  sl__file_unmap(&found.file);
  return status;
}
