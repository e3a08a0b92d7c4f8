/* Datasets of token files, mapped into memory: samples of equal length, one after another. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "data/dataset.h"

enum { HEADER_BYTES = 1024, HEADER_U16 = 20240520, HEADER_U32 = 20240801, HEADER_VERSION = 1 };

enum { WRITTEN = 4096 }; /* bytes at once */

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

bool sl__is_token_file(const uint8_t *bytes, size_t size) {
  uint32_t magic = size >= 4 ? read_u32(bytes) : 0;
  return magic == HEADER_U16 || magic == HEADER_U32;
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

static enum sl_status check_type(const char *path, enum sl_token_type type) {
  if (type == SL_TOKENS_U16 || type == SL_TOKENS_U32) return SL_OK;
  return sl__fail(SL_BAD_ARGUMENT, "%s: token type %d is unknown; use SL_TOKENS_U16 or _U32", path,
                  (int)type);
}

/* Finds the tokens behind the header. */
static enum sl_status count_tokens(const char *path, size_t header, struct mapped_set *set) {
  if ((set->file.size - header) % set->width)
    return sl__fail(SL_BAD_FILE,
                    "%s: %zu bytes are no multiple of %zu, a u%d token; is it of another type or "
                    "cut short?",
                    path, set->file.size - header, set->width, (int)set->width * 8);
  set->count = (int64_t)((set->file.size - header) / set->width);
  set->tokens = set->file.bytes + header;
  return SL_OK;
}

/* Finds the tokens and the part of them: [first, first + *count). */
static enum sl_status find_part(const char *path, const struct sl_token_file_options *options,
                                struct mapped_set *set, int64_t *count) {
  size_t header;
  double to = options->to == 0 ? 1 : options->to;
  enum sl_status status = check_header(path, &set->file, set->width, &header);
  if (status != SL_OK) return status;
  status = count_tokens(path, header, set);
  if (status != SL_OK) return status;
  if (!(options->from >= 0 && options->from < to && to <= 1))
    return sl__fail(SL_BAD_ARGUMENT, "%s: the part from %g to %g; give shares from 0 to 1", path,
                    options->from, to);
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
  SL__TRY(check_type(path, options->type));
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

/* ---- whole files ---- */

/* A number's bytes, the lowest first. Returns what is behind them. */
static uint8_t *put(uint8_t *to, uint32_t value, size_t width) {
  for (size_t b = 0; b < width; b++) *to++ = (uint8_t)(value >> 8 * b);
  return to;
}

static void write_tokens(struct sl__file *file, size_t width, const int32_t *tokens,
                         int64_t count) {
  uint8_t room[WRITTEN] = {0}, *to = put(room, width == 2 ? HEADER_U16 : HEADER_U32, 4);
  put(put(to, HEADER_VERSION, 4), (uint32_t)count, 4);
  sl__file_write(file, room, HEADER_BYTES);
  to = room;
  for (int64_t i = 0; i < count; i++) {
    to = put(to, (uint32_t)tokens[i], width);
    if (to < room + WRITTEN && i + 1 < count) continue;
    sl__file_write(file, room, (size_t)(to - room));
    to = room;
  }
}

enum sl_status sl_token_file_write(const char *path, enum sl_token_type type, const int32_t *tokens,
                                   int64_t count) {
  SL__NEEDS(path);
  if (count) SL__NEEDS(tokens);
  struct sl__file *file = NULL;
  int32_t most = type == SL_TOKENS_U16 ? UINT16_MAX : INT32_MAX;
  enum sl_status status = check_type(path, type);
  if (status != SL_OK) return status;
  if (count < 0 || count > UINT32_MAX)
    return sl__fail(SL_BAD_ARGUMENT, "%s: %lld tokens do not fit a token file; write several", path,
                    (long long)count);
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] > most)
      return sl__fail(SL_BAD_ARGUMENT, "%s: token %lld is %d; its type holds 0 to %d", path,
                      (long long)i, tokens[i], most);
  status = sl__file_create(path, &file);
  if (status != SL_OK) return status;
  write_tokens(file, type == SL_TOKENS_U16 ? 2 : 4, tokens, count);
  return sl__file_commit(file, NULL);
}

/* The type that the header names, if there is one. */
static enum sl_token_type type_of(const struct sl__mapping *file, enum sl_token_type type) {
  uint32_t magic = file->size >= HEADER_BYTES ? read_u32(file->bytes) : 0;
  return magic == HEADER_U16 ? SL_TOKENS_U16 : magic == HEADER_U32 ? SL_TOKENS_U32 : type;
}

enum sl_status sl_token_file_read(const char *path, enum sl_token_type type, int32_t **tokens,
                                  int64_t *count) {
  SL__NEEDS(path, tokens, count);
  struct mapped_set set = {0};
  int32_t *read = NULL;
  size_t header;
  enum sl_status status = check_type(path, type);
  if (status != SL_OK) return status;
  SL__TRY(sl__file_map(path, &set.file));
  set.width = type_of(&set.file, type) == SL_TOKENS_U32 ? 4 : 2;
  SL__TRY(check_header(path, &set.file, set.width, &header));
  SL__TRY(count_tokens(path, header, &set));
  read = sl__alloc((size_t)set.count, sizeof *read, "tokens");
  if (!read) SL__TRY(SL_NO_MEMORY);
  for (int64_t i = 0; i < set.count; i++) {
    uint32_t token = token_at(&set, i);
    if (token > INT32_MAX)
      SL__TRY(sl__fail(SL_BAD_FILE, "%s: token %lld is %lu; is the file of another type?", path,
                       (long long)i, (unsigned long)token));
    read[i] = (int32_t)token;
  }
  *tokens = read;
  *count = set.count;
  read = NULL;
out:
  free(read);
  sl__file_unmap(&set.file);
  return status;
}
